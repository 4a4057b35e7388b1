// The receiving half of the link: frames are checked, whole ones in order become beats, and what is wrong is dropped
// and counted by reason. Payload is written on trial while a frame comes in, and forgotten if its end disappoints.
//
// It says what it waits for every `AckEvery` frames, `AckDelay` cycles after a frame that was not, at once about a gap
// or a duplicate, and every `AckPeriod` cycles whatever happens. With it goes how many frames its memory has room for.
module link_receive
  import link_pkg::*;
#(
  parameter int unsigned DataWidth    = 256,
  parameter int unsigned PayloadBeats = 44,
  parameter int unsigned Depth        = 1024,  // beats of memory, a power of two
  parameter int unsigned AckEvery     = 8,
  parameter int unsigned AckDelay     = 2048,
  parameter int unsigned AckPeriod    = 8192
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,

  input  identity_t            identity_i,

  input  logic                 s_tvalid_i,  // taken at once, always
  input  logic [DataWidth-1:0] s_tdata_i,
  input  logic                 s_tlast_i,
  input  logic                 s_tuser_i,   // with the last beat: the MAC found the frame damaged

  output logic                 m_tvalid_o,
  input  logic                 m_tready_i,
  output logic [DataWidth-1:0] m_tdata_o,
  output logic                 m_tlast_o,   // of a chunk

  output logic                 heard_valid_o,
  output ack_t                 heard_o,
  output logic                 say_valid_o,
  input  logic                 say_ready_i,
  output ack_t                 say_o,

  output receive_events_t      events_o
);

  localparam int unsigned FreeWidth  = $clog2(Depth + 1);
  localparam int unsigned FrameShift = $clog2(PayloadBeats);  // beats a frame takes at most, rounded up
  localparam int unsigned RoomWidth  = FreeWidth - FrameShift;
  localparam int unsigned CountWidth = $clog2(AckEvery + 1);
  localparam int unsigned TimerWidth = $clog2(AckPeriod + 1);

  // --- A frame as it comes: header, then payload ---
  header_t     arriving;
  covered_t    header_q;
  logic        in_payload_q, ours, accept, overflow_q, takes, push, push_ready, starts;
  logic        ours_q, may_be_next_q, follows_commit_q, is_after_q, is_expected_q;
  logic        is_whole_q, is_last_beat;  // every beat of the payload came, the last one would come
  logic [7:0]  index_q;
  logic [31:0] crc_q, crc_first, crc_before, crc_beat, crc_header, crc_wanted_q;
  logic        ended_q, damaged_q, commit;
  logic [31:0] expected_q, expected_next, after_q;  // after_q: expected_q + 1

  assign arriving = s_tdata_i[$bits(header_t)-1:0];

  logic unused_fields;
  assign unused_fields = ^{arriving.source, header_q.ether_type, header_q.ring, header_q.epoch};

  assign starts   = s_tvalid_i && !in_payload_q;
  assign ours     = arriving.is.ether_type == EtherType && arriving.is.ring == identity_i.ring &&
                    arriving.is.epoch == identity_i.epoch && arriving.destination == identity_i.address;
  // The frame before may end in the cycle of this header, and its `commit` is late. So both numbers are compared, and the
  // next cycles choose.
  assign accept       = may_be_next_q && (follows_commit_q ? is_after_q : is_expected_q);
  // Beats beyond those that the header names are not taken, so `index_q` does not pass their number.
  assign takes        = s_tvalid_i && in_payload_q && !is_whole_q;
  assign is_last_beat = index_q + 8'd1 == header_q.beats;
  assign push         = takes && accept;

  // A CRC is linear: that over payload and header is the header's, xor the payload's followed by as many zeros. The
  // first is known as the header arrives. `crc_q` is the second, of the beats that came: each beat moves it on by the
  // beat's length, and adds its own, moved on by the header's length. So the end of a frame only compares.
  crc32 #(
    .Width($bits(covered_t))
  ) u_crc_header (
    .crc_i ('0),
    .data_i(arriving.is),
    .crc_o (crc_header)
  );

  crc32 #(
    .Width($bits(covered_t))
  ) u_crc_first (
    .crc_i ('1),
    .data_i('0),
    .crc_o (crc_first)
  );

  crc32 #(
    .Width(DataWidth)
  ) u_crc_before (
    .crc_i (crc_q),
    .data_i('0),
    .crc_o (crc_before)
  );

  crc32 #(
    .Width(DataWidth + $bits(covered_t))
  ) u_crc_beat (
    .crc_i ('0),
    .data_i({{$bits(covered_t){1'b0}}, s_tdata_i}),
    .crc_o (crc_beat)
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      in_payload_q  <= 1'b0;
      may_be_next_q <= 1'b0;
      overflow_q    <= 1'b0;
      ended_q       <= 1'b0;
    end else begin
      ended_q <= s_tvalid_i && s_tlast_i;
      if (s_tvalid_i) in_payload_q <= !s_tlast_i;
      if (starts) begin
        may_be_next_q <= ours && arriving.is.kind == KindData && arriving.is.beats != '0;
        overflow_q    <= 1'b0;
      end else if (push && !push_ready) begin
        overflow_q <= 1'b1;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (starts) begin
      header_q         <= arriving.is;
      crc_wanted_q     <= ~arriving.crc ^ crc_header;
      crc_q            <= crc_first;
      ours_q           <= ours;
      follows_commit_q <= commit;
      is_after_q       <= arriving.is.sequence_ == after_q;
      is_expected_q    <= arriving.is.sequence_ == expected_q;
      index_q          <= '0;
      is_whole_q       <= arriving.is.beats == '0;
    end else if (takes) begin
      index_q    <= index_q + 8'd1;
      is_whole_q <= is_last_beat;
      crc_q      <= crc_before ^ crc_beat;
    end
    damaged_q <= s_tuser_i;
  end

  // --- Its end, a cycle later: what is it worth? ---
  logic        crc_differs;
  logic [31:0] unused_sum;
  logic        is_intact, is_data, is_ack, rollback, is_ahead, is_duplicate;

  // All ones and a number that is not 0 carry: the carry chain compares, which is faster than LUTs.
  assign {crc_differs, unused_sum} = {1'b0, crc_q ^ crc_wanted_q} + {1'b0, {32{1'b1}}};

  assign is_intact     = is_whole_q && !crc_differs && !damaged_q;
  assign is_data       = ended_q && ours_q && is_intact && header_q.kind == KindData;
  assign is_ack        = ended_q && ours_q && is_intact && header_q.kind == KindAck;
  assign commit        = is_data && accept && !overflow_q;
  assign rollback      = ended_q && accept && !commit;
  assign is_ahead      = is_data && !accept && $signed(header_q.sequence_ - expected_q) > 0;
  assign is_duplicate  = is_data && !accept && $signed(header_q.sequence_ - expected_q) < 0;
  assign expected_next = commit ? after_q : expected_q;

  assign heard_valid_o    = is_ack;
  assign heard_o.gap      = header_q.flags[0];
  assign heard_o.expected = header_q.sequence_;
  assign heard_o.limit    = header_q.limit;

  assign events_o.received       = commit;
  assign events_o.acknowledged   = is_ack;
  assign events_o.drop_foreign   = ended_q && !ours_q;
  assign events_o.drop_length    = ended_q && ours_q && !is_whole_q;
  assign events_o.drop_crc       = ended_q && ours_q && is_whole_q && !is_intact;
  assign events_o.drop_gap       = is_ahead;
  assign events_o.drop_duplicate = is_duplicate;
  assign events_o.drop_full      = is_data && accept && overflow_q;

  // --- The memory ---
  logic [FreeWidth-1:0] free;

  frame_fifo #(
    .Width(DataWidth + 1),
    .Depth(Depth)
  ) u_memory (
    .clk_i,
    .rst_ni,
    .s_valid_i (push),
    .s_ready_o (push_ready),
    .s_data_i  ({header_q.flags[0] && is_last_beat, s_tdata_i}),
    .commit_i  (commit),
    .rollback_i(rollback),
    .m_valid_o (m_tvalid_o),
    .m_ready_i (m_tready_i),
    .m_data_o  ({m_tlast_o, m_tdata_o}),
    .free_o    (free)
  );

  // --- What to say ---
  logic [CountWidth-1:0] unsaid_q;  // frames
  logic [TimerWidth-1:0] silence_q;
  logic                  say_q, gap_q;
  // Longest frames that fit, a cycle ago. All beats of the frames below `expected_q` were in the memory by then. So the
  // limit never promises room that they take.
  logic [RoomWidth-1:0]  room_q;

  always_ff @(posedge clk_i) room_q <= RoomWidth'(free >> FrameShift);

  assign say_valid_o    = say_q;
  assign say_o.gap      = gap_q;
  assign say_o.expected = expected_q;
  assign say_o.limit    = expected_q + 32'(room_q);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      expected_q <= '0;
      after_q    <= 32'd1;
      unsaid_q   <= '0;
      silence_q  <= '0;
      say_q      <= 1'b0;
      gap_q      <= 1'b0;
    end else begin
      expected_q <= expected_next;
      if (commit) after_q <= after_q + 32'd1;
      if (say_valid_o && say_ready_i) begin
        unsaid_q  <= CountWidth'(commit);
        silence_q <= '0;
        say_q     <= is_ahead || is_duplicate;
        gap_q     <= is_ahead;
      end else begin
        if (commit && unsaid_q != CountWidth'(AckEvery)) unsaid_q <= unsaid_q + 1'b1;
        if (silence_q != TimerWidth'(AckPeriod)) silence_q <= silence_q + 1'b1;
        if (unsaid_q == CountWidth'(AckEvery) || silence_q == TimerWidth'(AckPeriod) || is_ahead || is_duplicate ||
            (unsaid_q != '0 && silence_q >= TimerWidth'(AckDelay))) begin
          say_q <= 1'b1;
        end
        if (is_ahead) gap_q <= 1'b1;
      end
    end
  end

endmodule
