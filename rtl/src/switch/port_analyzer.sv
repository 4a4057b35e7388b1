// The Port Learning Stage of one port (allreduce-switch, IV-B). It reads the Ethernet header of each frame on its way
// into the Port FIFO, asks the forwarding table for the destination, and passes both on together, with the marks of
// frame_marker. A frame's sender is learned when its last beat has come undamaged.
//
// The table is asked as soon as the first beat has come, which holds the destination. So this beat waits until the
// question before has been answered. MAC_ANA, the state of Fig. 10, is the second beat: addresses are complete. A frame
// that it finds wrong needs no answer. The destination follows it a cycle later at the earliest; answers take longer.
// Until then a frame waits in the Port FIFO and in a register behind it: so the long paths of what reads the frame do
// not begin in a block RAM. A beat that finds the FIFO empty goes into the register at once, and the register costs no
// time. Nothing else makes the stream wait: the Port FIFO takes a frame if the longest would fit and not too many short
// ones wait there, or drops it whole.
module port_analyzer
  import switch_pkg::*;
#(
  parameter int unsigned Ports     = 8,
  parameter int unsigned FifoBeats = 4096,  // what waits for judgements, and what a neighbour sends until it pauses
  localparam int unsigned FramesMax = FifoBeats / 16  // a power of two
) (
  input  logic             clk_i,
  input  logic             rst_ni,

  input  logic             s_valid_i,
  output logic             s_ready_o,
  input  beat_t            s_beat_i,
  input  types_t           s_types_i,

  output logic             find_valid_o,
  input  logic             find_ready_i,
  output logic [47:0]      find_address_o,
  input  logic             found_valid_i,
  input  logic [Ports-1:0] found_ports_i,
  output logic             learn_valid_o,
  input  logic             learn_ready_i,
  output logic [47:0]      learn_address_o,

  // Frames, with their destination through all beats: known, one port (the frame's own too); unknown, all of them;
  // ends here, none.
  output logic             m_valid_o,
  input  logic             m_ready_i,
  output beat_t            m_beat_o,
  output mark_e            m_mark_o,
  output logic             m_is_known_o,
  output logic [Ports-1:0] m_ports_o,

  output logic             is_filling_o,  // the Port FIFO: more than a sixteenth full; who is paused then still fits
  output logic             is_empty_o,
  output logic             is_crowded_o,  // it drops
  output arrival_t         arrival_o      // what to count
);

  localparam int unsigned IndexWidth = $clog2(FrameBeatsMax + 1);
  localparam int unsigned LevelWidth = $clog2(FifoBeats + 2);
  localparam int unsigned CountWidth = $clog2(FramesMax + 1);
  localparam logic [2:0]  ExtraMax   = 3'((FrameBytesMax - 1) % 8);

  typedef struct packed {
    logic             is_known;
    logic [Ports-1:0] ports;
  } destination_t;

  logic [IndexWidth-1:0] index_q;  // of the beat
  logic                  is_first_q, is_second_q;
  logic                  skips_q;  // what is left of a frame that is too long, or dropped
  logic [47:0]           to_q, from, learn_q;
  logic [15:0]           from_high_q;
  logic                  asks, asks_q, waits_q, has_found_q, ends_well_q, learns_q;
  logic                  owes_q;  // the destination of the frame that was analyzed last
  logic                  needs_find_q, is_good_q;
  logic                  takes, is_analyzed, analyzes, is_short, is_bad_source, is_reserved, is_good;
  logic                  is_too_long;
  logic                  fifo_ready, fifo_valid, destination_valid, destination_push, unused_ready;
  logic                  enters, passes, head_valid_q, head_goes, loads;
  beat_t                 beat, fifo_beat, head_q;
  mark_e                 mark, fifo_mark, head_mark_q;
  logic                  skips, refuses, has_room_q, is_filling_q, is_empty_q;
  logic [LevelWidth-1:0] level;
  logic [CountWidth-1:0] frames_q;  // that wait: in the Port FIFO, or behind it
  destination_t          destination_d, destination;
  logic                  has_found;
  logic [Ports-1:0]      found_ports, found_ports_q;

  // --- The answer may come before it is needed ---
  assign has_found   = found_valid_i || has_found_q;
  assign found_ports = has_found_q ? found_ports_q : found_ports_i;

  // --- MAC_ANA ---
  assign refuses       = is_first_q && !has_room_q;
  assign skips         = skips_q || refuses;
  assign is_analyzed   = !skips && (is_second_q || (is_first_q && s_beat_i.last));
  assign is_short      = is_first_q || (s_beat_i.last && s_beat_i.extra < 3'd5);  // than 14 bytes
  assign from          = {from_high_q, number_of_4(s_beat_i.data[31:0])};
  assign is_bad_source = from[40] || from == '0;
  assign is_reserved   = to_q[47:4] == 44'h0180c200000;  // for the bridge itself (IEEE 802.1D, table 7-10)
  assign is_good       = !is_short && !is_bad_source;
  assign is_too_long   = !skips && index_q == IndexWidth'(FrameBeatsMax - 1) &&
                         !(s_beat_i.last && s_beat_i.extra <= ExtraMax);
  assign takes         = s_valid_i && s_ready_o;
  assign analyzes      = takes && is_analyzed;
  assign asks          = takes && is_first_q && !refuses && !s_beat_i.last && !s_beat_i.data[0];  // for one address
  assign s_ready_o     = skips || (fifo_ready && !(is_first_q && waits_q) && !(is_analyzed && owes_q));

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      index_q     <= '0;
      is_first_q  <= 1'b1;
      is_second_q <= 1'b0;
      skips_q     <= 1'b0;
      asks_q      <= 1'b0;
      waits_q     <= 1'b0;
      owes_q      <= 1'b0;
      has_found_q <= 1'b0;
      ends_well_q <= 1'b0;
      learns_q    <= 1'b0;
    end else begin
      if (takes) begin
        skips_q     <= !s_beat_i.last && (skips || is_too_long);
        is_first_q  <= s_beat_i.last;
        is_second_q <= is_first_q && !s_beat_i.last;
        index_q     <= s_beat_i.last ? '0 : index_q + IndexWidth'(index_q != IndexWidth'(FrameBeatsMax));
      end
      asks_q      <= asks || (asks_q && !find_ready_i);
      waits_q     <= asks || (waits_q && !found_valid_i);
      owes_q      <= analyzes || (owes_q && !destination_push);
      has_found_q <= is_second_q && has_found;
      ends_well_q <= takes && s_beat_i.last && !s_beat_i.error && !skips && !is_too_long;
      // A sender that could not be learned before the next frame is learned from a later one.
      learns_q    <= !analyzes && (ends_well_q ? is_good_q : learns_q && !learn_ready_i);
    end
  end

  always_ff @(posedge clk_i) begin
    if (takes && is_first_q && !refuses) begin
      to_q        <= {number_of_4(s_beat_i.data[31:0]), number_of_2(s_beat_i.data[47:32])};
      from_high_q <= number_of_2(s_beat_i.data[63:48]);
    end
    if (analyzes) begin
      learn_q      <= from;
      is_good_q    <= is_good;
      needs_find_q <= is_good && !to_q[40];
    end
    if (found_valid_i) found_ports_q <= found_ports_i;
  end

  assign find_valid_o    = asks_q;
  assign find_address_o  = to_q;
  assign learn_valid_o   = learns_q;
  assign learn_address_o = learn_q;

  // --- The Port FIFO, and a destination for each frame in it ---
  always_comb begin
    destination_push = owes_q && (!needs_find_q || has_found);
    destination_d    = '{is_known: 1'b0, ports: is_good_q && !is_reserved ? '1 : '0};
    if (needs_find_q) destination_d = '{is_known: |found_ports, ports: |found_ports ? found_ports : '1};
    beat = s_beat_i;
    if (is_too_long) begin
      beat.last  = 1'b1;
      beat.error = 1'b1;
      beat.extra = ExtraMax + 1'b1;
    end
  end

  frame_marker u_marker (.clk_i, .rst_ni, .take_i(takes), .beat_i(s_beat_i), .types_i(s_types_i), .mark_o(mark));

  stream_fifo #(
    .Width ($bits(mark_e) + $bits(beat_t)),
    .Depth (FifoBeats),
    .Passes(1'b1)
  ) u_fifo (
    .clk_i,
    .rst_ni,
    .s_valid_i(enters && !passes),
    .s_ready_o(fifo_ready),
    .s_data_i ({mark, beat}),
    .m_valid_o(fifo_valid),
    .m_ready_i(loads),
    .m_data_o ({fifo_mark, fifo_beat}),
    .level_o  (level)
  );

  assign enters    = takes && !skips;
  assign head_goes = head_valid_q && destination_valid && m_ready_i;
  assign loads     = !head_valid_q || head_goes;
  assign passes    = loads && !fifo_valid;  // if it offers nothing, nothing is in it

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      head_valid_q <= 1'b0;
    end else if (loads) begin
      head_valid_q <= fifo_valid || enters;
    end
  end

  always_ff @(posedge clk_i) begin
    if (loads) begin
      head_q      <= fifo_valid ? fifo_beat : beat;
      head_mark_q <= fifo_valid ? fifo_mark : mark;
    end
  end

  stream_queue #(
    .Width($bits(destination_t)),
    .Depth(FramesMax)
  ) u_destinations (
    .clk_i,
    .rst_ni,
    .s_valid_i(destination_push),
    .s_ready_o(unused_ready),  // there is a place for each frame
    .s_data_i (destination_d),
    .m_valid_o(destination_valid),
    .m_ready_i(head_goes && head_q.last),
    .m_data_o (destination)
  );

  assign m_valid_o    = head_valid_q && destination_valid;
  assign m_beat_o     = head_q;
  assign m_mark_o     = head_mark_q;
  assign m_is_known_o = destination.is_known;
  assign m_ports_o    = destination.ports;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      frames_q     <= '0;
      has_room_q   <= 1'b1;
      is_filling_q <= 1'b0;
      is_empty_q   <= 1'b1;
    end else begin
      frames_q     <= frames_q + CountWidth'(analyzes) - CountWidth'(head_goes && head_q.last);
      // A cycle old when it is used: one frame may have come since.
      has_room_q   <= level < LevelWidth'(FifoBeats - FrameBeatsMax) && frames_q < CountWidth'(FramesMax - 2);
      is_filling_q <= level > LevelWidth'(FifoBeats / 16);
      is_empty_q   <= level < LevelWidth'(FifoBeats / 64);
    end
  end

  assign is_filling_o = is_filling_q;
  assign is_empty_o   = is_empty_q;
  assign is_crowded_o = !has_room_q;

  // --- Counting ---
  always_comb begin
    arrival_o            = '0;
    arrival_o.ended      = takes && s_beat_i.last;
    arrival_o.bytes      = {index_q, s_beat_i.extra} + 11'd1;
    arrival_o.damaged    = arrival_o.ended && s_beat_i.error;
    arrival_o.oversize   = takes && is_too_long;
    arrival_o.no_room    = takes && refuses;
    arrival_o.runt       = analyzes && is_short;
    arrival_o.bad_source = analyzes && !is_short && is_bad_source;
    arrival_o.filtered   = analyzes && is_good && is_reserved;
  end

endmodule
