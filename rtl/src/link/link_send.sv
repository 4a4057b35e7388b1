// The sending half of the link. It makes frames of beats and keeps them until they are acknowledged. It sends them
// again from the first missing one (go-back-n) when the neighbour reports a gap or nothing is heard for `timeout_i`
// cycles. A frame goes only while its number is below the limit that the neighbour grants from its free memory: that is
// the pause. Acknowledgements for the other neighbour go between frames, and before them.
//
// It acts on acknowledgements between frames, so that no frame is released while it is on its way out.
module link_send
  import link_pkg::*;
#(
  parameter int unsigned DataWidth    = 256,
  parameter int unsigned PayloadBeats = 44,
  parameter int unsigned Slots        = 16,
  parameter int unsigned FirstLimit   = 16    // frames that may go before the neighbour has said anything
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,

  input  identity_t            identity_i,
  input  neighbours_t          neighbours_i,
  input  logic [31:0]          timeout_i,
  input  logic                 stop_i,         // begin no frame
  output logic                 stopped_o,      // none is on its way out: a reset breaks none off

  input  logic                 s_tvalid_i,
  output logic                 s_tready_o,
  input  logic [DataWidth-1:0] s_tdata_i,
  input  logic                 s_tlast_i,

  input  logic                 heard_valid_i,  // an acknowledgement arrived
  input  ack_t                 heard_i,
  input  logic                 say_valid_i,    // one is to be sent; what it says may change until it is
  output logic                 say_ready_o,
  input  ack_t                 say_i,

  output logic                 m_tvalid_o,
  input  logic                 m_tready_i,
  output logic [DataWidth-1:0] m_tdata_o,
  output logic                 m_tlast_o,

  output logic                 idle_o,         // a cycle ago every frame was acknowledged, and none was being gathered
  output send_events_t         events_o
);

  localparam int unsigned IndexWidth = $clog2(PayloadBeats);
  localparam int unsigned SlotWidth  = $clog2(Slots);

  logic [SlotWidth:0]    head;
  logic [31:0]           base, crc, release_to, crc_data, crc_ack, crc_payload;
  logic [7:0]            beats;
  logic                  ends_chunk, release_frames, gathers_none;
  logic [DataWidth-1:0]  payload;

  logic [31:0]           next_q;        // the frame to send next
  logic [31:0]           sent_q;        // frames below this number have been sent at least once
  logic [31:0]           limit_q;
  logic                  sending_q;     // a frame's payload is on its way
  logic                  out_valid_q;   // a beat is on its way out
  logic [IndexWidth-1:0] index_q;
  ack_t                  heard_q;
  logic                  heard_valid_q;
  logic [31:0]           rewound_to_q;  // one gap is reported by every later frame: go back once
  logic                  rewound_q;
  logic [31:0]           quiet_q;       // cycles without news of frames that are out

  logic                  en, read, last_beat, start_data, start_ack, has_frame, may_send, may_start;
  logic                  is_progress, is_valid_ack;
  logic                  go_back_gap, go_back_timeout, is_out;  // is_out: a frame is, and not acknowledged
  header_t               data_header, ack_header;

  replay_buffer #(
    .DataWidth     (DataWidth),
    .PayloadBeats  (PayloadBeats),
    .Slots         (Slots)
  ) u_replay (
    .clk_i,
    .rst_ni,
    .s_tvalid_i,
    .s_tready_o,
    .s_tdata_i,
    .s_tlast_i,
    .gathers_none_o(gathers_none),
    .head_o        (head),
    .base_o        (base),
    .release_i     (release_frames),
    .release_to_i  (release_to),
    .slot_i        (next_q[SlotWidth-1:0]),
    .beats_o       (beats),
    .ends_chunk_o  (ends_chunk),
    .crc_o         (crc),
    .read_i        (read),
    .read_index_i  (index_q),
    .read_data_o   (payload)
  );

  // --- Headers ---
  always_comb begin
    data_header               = '0;
    data_header.destination   = neighbours_i.right;
    data_header.source        = identity_i.address;
    data_header.is.ether_type = EtherType;
    data_header.is.kind       = KindData;
    data_header.is.flags      = {7'd0, ends_chunk};
    data_header.is.ring       = identity_i.ring;
    data_header.is.epoch      = identity_i.epoch;
    data_header.is.beats      = beats;
    data_header.is.sequence_  = next_q;

    ack_header                = data_header;
    ack_header.destination    = neighbours_i.left;
    ack_header.is.kind        = KindAck;
    ack_header.is.flags       = {7'd0, say_i.gap};
    ack_header.is.beats       = 8'd0;
    ack_header.is.sequence_   = say_i.expected;
    ack_header.is.limit       = say_i.limit;
  end

  // A CRC is linear: that over payload and header is the header's, xor the payload's followed by as many zeros. The
  // second comes from a memory, and is late. They meet on the way out.
  crc32 #(
    .Width($bits(covered_t))
  ) u_crc_data (
    .crc_i ('0),
    .data_i(data_header.is),
    .crc_o (crc_data)
  );

  crc32 #(
    .Width($bits(covered_t))
  ) u_crc_ack (
    .crc_i ('1),
    .data_i(ack_header.is),
    .crc_o (crc_ack)
  );

  crc32 #(
    .Width($bits(covered_t))
  ) u_crc_payload (
    .crc_i (crc),
    .data_i('0),
    .crc_o (crc_payload)
  );

  // --- What goes next. base, next_q and head lie in this order, with no more than `Slots` frames between ---
  assign has_frame   = next_q[SlotWidth:0] != head;
  assign may_send    = $signed(limit_q - next_q) > 0;
  assign may_start   = !sending_q && !stop_i;
  assign start_ack   = may_start && say_valid_i;
  assign start_data  = may_start && !say_valid_i && !heard_valid_q && !go_back_timeout && has_frame && may_send;
  assign last_beat   = 8'(index_q) + 8'd1 == beats;  // the sum is there before the memory's answer
  assign read        = en && sending_q;
  assign say_ready_o = en && may_start;
  assign stopped_o   = !sending_q && !out_valid_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      idle_o <= 1'b1;
    end else begin
      idle_o <= gathers_none && head == base[SlotWidth:0];
    end
  end

  // --- What was heard ---
  // Of frames between the oldest kept and the last sent; anything else is old or wrong.
  assign is_valid_ack    = heard_valid_q && !sending_q && heard_q.expected - base <= sent_q - base;
  assign is_progress     = is_valid_ack && heard_q.expected != base;
  assign go_back_gap     = is_valid_ack && heard_q.gap && !(rewound_q && rewound_to_q == heard_q.expected);
  assign is_out          = next_q[SlotWidth:0] != base[SlotWidth:0];
  assign go_back_timeout = !sending_q && !heard_valid_q && is_out && quiet_q >= timeout_i;
  assign release_frames  = is_progress;
  assign release_to      = heard_q.expected;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      next_q        <= '0;
      sent_q        <= '0;
      limit_q       <= 32'(FirstLimit);
      sending_q     <= 1'b0;
      index_q       <= '0;
      heard_valid_q <= 1'b0;
      heard_q       <= '0;
      rewound_q     <= 1'b0;
      rewound_to_q  <= '0;
      quiet_q       <= '0;
    end else begin
      if (heard_valid_i) begin
        heard_q       <= heard_i;
        heard_q.gap   <= heard_i.gap || (heard_valid_q && sending_q && heard_q.gap);
        heard_valid_q <= 1'b1;
      end else if (!sending_q) begin
        heard_valid_q <= 1'b0;
      end

      if (en && start_data) begin
        sending_q <= 1'b1;
        index_q   <= '0;
      end else if (read) begin
        index_q <= index_q + 1'b1;
        if (last_beat) begin
          sending_q <= 1'b0;
          next_q    <= next_q + 1'b1;
          if ($signed(next_q + 1'b1 - sent_q) > 0) sent_q <= next_q + 1'b1;
        end
      end

      if (is_valid_ack) begin
        if ($signed(heard_q.limit - limit_q) > 0) limit_q <= heard_q.limit;
        if (go_back_gap) begin
          next_q       <= heard_q.expected;
          rewound_q    <= 1'b1;
          rewound_to_q <= heard_q.expected;
        end else if ($signed(heard_q.expected - next_q) > 0) begin
          next_q <= heard_q.expected;
        end
      end
      if (go_back_timeout) begin
        next_q    <= base;
        rewound_q <= 1'b0;
      end

      if (is_progress || go_back_gap || go_back_timeout || !is_out) begin
        quiet_q <= '0;
      end else if (quiet_q != '1) begin
        quiet_q <= quiet_q + 1'b1;
      end
    end
  end

  // --- The way out: a header, or what the memory gives a cycle after it was asked ---
  logic    out_last_q, out_is_header_q;
  header_t     header_q, header;
  logic [31:0] crc_payload_q;  // 0 behind no payload

  assign en = m_tready_i || !out_valid_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      out_valid_q <= 1'b0;
    end else if (en) begin
      out_valid_q <= start_ack || start_data || sending_q;
    end
  end

  always_ff @(posedge clk_i) begin
    if (en) begin
      out_last_q      <= start_ack || (sending_q && last_beat);
      out_is_header_q <= !sending_q;
      if (!sending_q) begin
        header_q     <= start_ack ? ack_header : data_header;
        header_q.crc <= ~(start_ack ? crc_ack : crc_data);
        crc_payload_q <= start_ack ? '0 : crc_payload;
      end
    end
  end

  assign m_tvalid_o = out_valid_q;
  assign m_tlast_o  = out_last_q;
  always_comb begin
    header     = header_q;
    header.crc = header_q.crc ^ crc_payload_q;
  end
  assign m_tdata_o  = out_is_header_q ? DataWidth'(header) : payload;

  assign events_o.sent    = en && start_data;
  assign events_o.resent  = en && start_data && $signed(sent_q - next_q) > 0;
  assign events_o.ack     = en && start_ack;
  assign events_o.paused  = !sending_q && has_frame && !may_send;
  assign events_o.timeout = go_back_timeout;

endmodule
