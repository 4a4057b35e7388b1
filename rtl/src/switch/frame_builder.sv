// Puts a frame with a sum together: the kept header of one port, the sum as it is read from the result buffer, or four
// bytes of zeros in a short packet, and the ICRC on the way. A frame is sent at a beat a cycle into a FIFO that has room
// for it whole, so all ports may send the same sum in step, whatever their outputs do.
//
// The builder asks for the frame's port when it begins to build it. A worker may have moved to another port since its
// left neighbour contributed. It gets the sum at its new port, from which it has sent by then.
//
// Steps are the Output Arbiter's. Headers are at most 9 full beats (13 of a Write First): shorter ones begin some steps
// later, so that all meet the sum's first beat at the same step.
module frame_builder
  import switch_pkg::*;
  import aggregation_pkg::*;
#(
  parameter int unsigned Ports  = 8,
  parameter int unsigned Depth  = 1024,  // beats of the FIFO: six frames of the longest
  parameter int unsigned Frames = 16     // in it
) (
  input  logic        clk_i,
  input  logic        rst_ni,

  // The Output Arbiter.
  input  logic        looks_i,        // the header buffer is asked for what lies beside the header
  input  logic        checks_i,       // ... which is here, and this port is to send:
  input  packet_t     packet_i,
  input  logic        is_repeat_i,    // under the header of a frame that came again
  input  logic        is_kept_i,      // in the cycle after: else nothing is sent
  input  logic        steps_i,
  input  logic [7:0]  step_i,
  output logic        has_room_o,     // for another whole frame
  output logic        is_late_o,      // with checks_i: nothing is to be done at step 0
  output logic        is_lost_o,      // nothing is sent: destination unknown, or the header is gone (a cycle late)

  // Where is this address? No port: its address is unknown.
  output logic             find_valid_o,
  input  logic             find_ready_i,
  output logic [47:0]      find_address_o,
  input  logic             found_valid_i,
  input  logic [Ports-1:0] found_ports_i,

  // Buffers: headers come a cycle later, the sum of step n where the header's partial beat is.
  output logic [3:0]  header_beat_o,
  input  logic [63:0] header_data_i,
  input  logic [63:0] repeat_data_i,
  input  logic [63:0] result_data_i,

  output logic        m_valid_o,
  input  logic        m_ready_i,
  output beat_t       m_beat_o,
  output logic [Ports-1:0] m_ports_o  // one, through a frame
);

  localparam logic [7:0]  FirstBeats = 8'd13, OtherBeats = 8'd9;  // full ones of the longest headers
  localparam int unsigned FrameBeats = 145;  // at most, and those on their way into the FIFO

  typedef struct packed {
    logic        last;
    logic [2:0]  extra;
    logic [63:0] data;
  } word_t;

  // --- What is to be sent ---
  meta_t       meta;
  kind_e       kind_q;
  logic        is_v2_q, has_tag_q, is_short_q;
  logic        is_checked_q, is_active_q, is_repeat_q, is_its_header_q, is_its_repeat_q, is_mine;
  logic        is_found, is_six, is_odd;
  logic [3:0]  full_beats;
  logic [7:0]  last_word, end_beat;
  logic [63:0] header;

  // As in a meta_t. Both memories' words are compared, and it is chosen between them a cycle later: paths that begin in
  // a block RAM are long.
  logic [GenerationWidth+31:0] sum;
  assign sum = {packet_i.generation, packet_i.message};

  logic unused_packet;
  assign unused_packet = ^{packet_i.job, packet_i.place, packet_i.how, meta};

  assign header     = is_repeat_q ? repeat_data_i : header_data_i;
  assign meta       = header[$bits(meta_t)-1:0];
  assign is_mine    = is_repeat_q ? is_its_repeat_q : is_its_header_q;
  assign is_lost_o  = (is_checked_q && !is_mine && is_kept_i) || (is_found && found_ports_i == '0);
  assign is_late_o  = meta.is_v2 || !meta.has_tag || meta.kind == KindPlain;
  assign full_beats = header_beats(kind_q, is_v2_q, has_tag_q);
  assign is_six     = header_ends_at_six(kind_q, is_v2_q, has_tag_q);
  assign last_word  = is_short_q ? '0 : packet_i.last_word;
  assign is_odd     = !last_word[0];
  assign end_beat   = 8'(full_beats) + 8'(last_word >> 1) + 8'(!is_odd || is_six);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      is_checked_q <= 1'b0;
      is_active_q  <= 1'b0;
    end else begin
      is_checked_q <= checks_i;
      is_active_q  <= !looks_i && (checks_i || is_active_q);
    end
  end

  always_ff @(posedge clk_i) begin
    if (looks_i) is_repeat_q <= is_repeat_i;
    if (checks_i) begin
      is_its_header_q <= header_data_i[$bits(sum)-1:0] == sum;
      is_its_repeat_q <= repeat_data_i[$bits(sum)-1:0] == sum;
      kind_q          <= meta.kind;
      is_v2_q         <= meta.is_v2;
      has_tag_q       <= meta.has_tag;
      is_short_q      <= meta.is_short;
    end
  end

  // --- Where it goes: the address is in the first beat, read while it is checked ---
  logic             begins, asks_q, waits_q, destination_ready, destination_valid, is_nowhere, frame_ends;
  logic [47:0]      address_q;
  logic [Ports-1:0] destination;

  assign begins         = is_checked_q && is_mine;
  assign is_found       = waits_q && found_valid_i;
  assign find_valid_o   = asks_q;
  assign find_address_o = address_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      asks_q  <= 1'b0;
      waits_q <= 1'b0;
    end else begin
      asks_q  <= (begins && is_kept_i) || (asks_q && !find_ready_i);
      waits_q <= (begins && is_kept_i) || (waits_q && !is_found);
    end
  end

  always_ff @(posedge clk_i) begin
    if (begins) address_q <= address_of(header[47:0]);
  end

  // A FIFO, because its output is a register: the paths through an output begin here.
  logic [$clog2(Frames+2)-1:0] unused_level;

  stream_fifo #(
    .Width (Ports + 1),
    .Depth (Frames),
    .Passes(1'b1)
  ) u_destinations (
    .clk_i,
    .rst_ni,
    .s_valid_i(is_found),
    .s_ready_o(destination_ready),
    .s_data_i ({found_ports_i == '0, found_ports_i}),  // compared here, where there is time
    .m_valid_o(destination_valid),
    .m_ready_i(frame_ends),
    .m_data_o ({is_nowhere, destination}),
    .level_o  (unused_level)
  );

  // --- Header and sum, joined ---
  logic [7:0]  beat, beat_q, beat_end_q;
  logic        valid_q;
  logic [63:16] before_q;
  logic [63:0] joined;

  assign beat          = step_i - (kind_q == KindFirst ? FirstBeats : OtherBeats) + 8'(full_beats);  // below 0: not yet
  assign header_beat_o = looks_i ? MetaBeat : steps_i ? beat[3:0] : '0;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      valid_q <= 1'b0;
    end else begin
      valid_q <= steps_i && is_active_q && is_mine && beat <= end_beat;
    end
  end

  always_ff @(posedge clk_i) begin
    beat_q     <= beat;
    beat_end_q <= end_beat;
    before_q   <= result_data_i[63:16];
  end

  always_comb begin
    if (is_six) begin
      joined = {result_data_i[15:0], beat_q == 8'(full_beats) ? header[47:0] : before_q[63:16]};
    end else begin
      joined = {result_data_i[47:0], beat_q == 8'(full_beats) ? header[15:0] : before_q[63:48]};
    end
    if (beat_q < 8'(full_beats)) joined = header;
  end

  // --- With its ICRC ---
  logic        in_valid_q, in_first_q, in_ends_q, in_at_six_q, out_valid_q, out_ends_q, out_at_six_q, spills_q;
  logic [63:0] in_data_q, out_data_q;
  logic        is_right_unused;
  logic [31:0] crc;
  logic [15:0] spilt_q;
  word_t       word, out;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      in_valid_q  <= 1'b0;
      out_valid_q <= 1'b0;
      spills_q    <= 1'b0;
    end else begin
      in_valid_q  <= valid_q;
      out_valid_q <= in_valid_q;
      spills_q    <= out_valid_q && out_ends_q && out_at_six_q;
    end
  end

  always_ff @(posedge clk_i) begin
    in_first_q   <= beat_q == '0;
    in_ends_q    <= beat_q == beat_end_q;
    in_at_six_q  <= is_six ^ is_odd;
    in_data_q    <= joined;
    // The only word of a short packet. The bytes behind it do not count.
    if (is_short_q && beat_q == 8'(full_beats) && is_six) in_data_q[63:48] <= '0;
    if (is_short_q && beat_q == 8'(full_beats) && !is_six) in_data_q[47:16] <= '0;
    if (is_short_q && beat_q > 8'(full_beats)) in_data_q[15:0] <= '0;
    out_ends_q   <= in_ends_q;
    out_at_six_q <= in_at_six_q;
    out_data_q   <= in_data_q;
    spilt_q      <= crc[31:16];
  end

  icrc u_icrc (
    .clk_i,
    .rst_ni,
    .valid_i      (in_valid_q),
    .first_i      (in_first_q),
    .is_v2_i      (is_v2_q),
    .has_tag_i    (has_tag_q),
    .data_i       (in_data_q),
    .ends_i       (in_ends_q),
    .ends_at_six_i(in_at_six_q),
    .icrc_o       (crc),
    .is_right_o   (is_right_unused)
  );

  // Behind six bytes the ICRC spills into a beat of its own.
  always_comb begin
    word = '{last: 1'b0, extra: 3'd7, data: out_data_q};
    if (spills_q) begin
      word.last  = 1'b1;
      word.extra = 3'd1;
      word.data  = {48'd0, spilt_q};
    end else if (out_ends_q && out_at_six_q) begin
      word.data = {crc[15:0], out_data_q[47:0]};
    end else if (out_ends_q) begin
      word.last  = 1'b1;
      word.extra = 3'd5;
      word.data  = {16'd0, crc, out_data_q[15:0]};
    end
  end

  // --- To the output ---
  localparam int unsigned LevelWidth = $clog2(Depth + 2);

  logic [LevelWidth-1:0] level;
  logic                  is_room_unused, frame_valid, frame_ready, is_roomy_q;

  stream_fifo #(
    .Width($bits(word_t)),
    .Depth(Depth)
  ) u_frames (
    .clk_i,
    .rst_ni,
    .s_valid_i(out_valid_q || spills_q),
    .s_ready_o(is_room_unused),
    .s_data_i (word),
    .m_valid_o(frame_valid),
    .m_ready_i(frame_ready),
    .m_data_o (out),
    .level_o  (level)
  );

  // A cycle old when it is used.
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      is_roomy_q <= 1'b1;
    end else begin
      is_roomy_q <= level <= LevelWidth'(Depth - FrameBeats);
    end
  end

  // A frame without a port is discarded.
  assign m_valid_o   = frame_valid && destination_valid && !is_nowhere;
  assign frame_ready = destination_valid && (m_ready_i || is_nowhere);
  assign frame_ends  = frame_valid && frame_ready && out.last;
  assign has_room_o  = is_roomy_q && destination_ready && !waits_q;
  assign m_beat_o    = '{error: 1'b0, last: out.last, extra: out.extra, data: out.data};
  assign m_ports_o   = destination;

endmodule
