// From the MAC of a fast port to the slices of a netfold_switch_sliced: each frame to one of them, whole. A MAC cannot
// wait, and gives a slice up to `Slices` times its share. So there is a queue for each slice, which takes a frame if the
// longest would fit, or drops it. The queues are on the MAC's side of the crossing, and as wide as its beats.
//
// A frame of more than FrameBytesMax ends here, damaged, in the beat behind them: the slice counts it as too long.
module slice_distributor
  import switch_pkg::*;
#(
  parameter int unsigned Slices     = 8,      // a power of two, 2 to 128
  parameter int unsigned Width      = 512,    // a power of two, 64 to 512
  parameter int unsigned QueueBytes = 32768   // of a slice: a power of two, more than two of the longest frames
) (
  input  logic                    mac_clk_i,
  input  logic                    mac_rst_ni,
  input  logic                    s_tvalid_i,
  input  logic [Width-1:0]        s_tdata_i,
  input  logic [Width/8-1:0]      s_tkeep_i,
  input  logic                    s_tlast_i,
  input  logic                    s_tuser_i,  // with the last beat: a damaged frame

  input  logic                    clk_i,
  input  logic                    rst_ni,
  output logic [Slices-1:0]       m_tvalid_o,
  input  logic [Slices-1:0]       m_tready_i,
  output logic [Slices-1:0][63:0] m_tdata_o,
  output logic [Slices-1:0][7:0]  m_tkeep_o,
  output logic [Slices-1:0]       m_tlast_o,
  output logic [Slices-1:0]       m_tuser_o,
  output logic [Slices-1:0][5:0]  m_dropped_o  // in this cycle one hears of so many more frames that found no room
);

  localparam int unsigned Bytes      = Width / 8;
  localparam int unsigned ExtraWidth = $clog2(Bytes);
  localparam int unsigned SliceWidth = $clog2(Slices);
  localparam int unsigned Longest    = FrameBytesMax / Bytes + 1;  // beats: more than FrameBytesMax
  localparam int unsigned CountWidth = $clog2(Longest + 1);
  localparam int unsigned HeldBeats  = 16;  // until a slice is known: nine beats of 64 bits, and four cycles
  localparam int unsigned CrossBeats = 2048 / Width < 8 ? 8 : 2048 / Width;

  typedef struct packed {
    logic                  error;
    logic                  last;
    logic [ExtraWidth-1:0] extra;  // of the last: valid bytes less one
    logic [Width-1:0]      data;
  } wide_t;

  // --- From the MAC: the end of a frame, and the choice of its slice ---
  logic [CountWidth-1:0] count_q;
  logic [ExtraWidth-1:0] extra;
  logic                  is_cut, skips_q, in_valid_q;
  wide_t                 in_q;

  assign is_cut = count_q == CountWidth'(Longest - 1) && !s_tlast_i;

  // The bytes beside the first are counted: bit i of their number is the parity of every 2^i-th of their marks.
  always_comb begin
    extra = '0;
    for (int unsigned i = 0; i < ExtraWidth; i++) begin
      for (int unsigned at = 1; at < Bytes >> i; at++) extra[i] ^= s_tkeep_i[at << i];
    end
  end

  always_ff @(posedge mac_clk_i or negedge mac_rst_ni) begin
    if (!mac_rst_ni) begin
      count_q    <= '0;
      skips_q    <= 1'b0;
      in_valid_q <= 1'b0;
    end else begin
      in_valid_q <= s_tvalid_i && !skips_q;
      if (s_tvalid_i) begin
        count_q <= s_tlast_i ? '0 : count_q + CountWidth'(!skips_q && !is_cut);
        skips_q <= !s_tlast_i && (skips_q || is_cut);
      end
    end
  end

  always_ff @(posedge mac_clk_i) begin
    in_q <= '{error: is_cut || s_tuser_i, last: is_cut || s_tlast_i, extra: extra, data: s_tdata_i};
  end

  logic                  chosen_valid, chosen_ready, slice_valid, held_valid, held_ready, goes;
  logic [SliceWidth-1:0] chosen, slice;
  wide_t                 held;
  logic                  unused_ready;

  slice_choice #(
    .Slices(Slices),
    .Width (Width)
  ) u_choice (
    .clk_i    (mac_clk_i),
    .rst_ni   (mac_rst_ni),
    .s_valid_i(s_tvalid_i),
    .s_last_i (s_tlast_i),
    .s_keep_i (s_tkeep_i),
    .s_data_i (s_tdata_i),
    .m_valid_o(chosen_valid),
    .m_slice_o(chosen)
  );

  // Both have room: a choice comes some cycles after its frame, and from then on a beat leaves in each cycle.
  stream_queue #(
    .Width(SliceWidth),
    .Depth(HeldBeats)
  ) u_slices (
    .clk_i    (mac_clk_i),
    .rst_ni   (mac_rst_ni),
    .s_valid_i(chosen_valid),
    .s_ready_o(chosen_ready),
    .s_data_i (chosen),
    .m_valid_o(slice_valid),
    .m_ready_i(goes && held.last),
    .m_data_o (slice)
  );

  stream_queue #(
    .Width($bits(wide_t)),
    .Depth(HeldBeats)
  ) u_held (
    .clk_i    (mac_clk_i),
    .rst_ni   (mac_rst_ni),
    .s_valid_i(in_valid_q),
    .s_ready_o(held_ready),
    .s_data_i (in_q),
    .m_valid_o(held_valid),
    .m_ready_i(slice_valid),
    .m_data_o (held)
  );

  assign goes         = held_valid && slice_valid;
  assign unused_ready = chosen_ready && held_ready;

  // --- To the queue of its slice ---
  logic              first_q, begins_q;
  logic [Slices-1:0] valid_q;
  wide_t             beat_q;

  always_ff @(posedge mac_clk_i or negedge mac_rst_ni) begin
    if (!mac_rst_ni) begin
      begins_q <= 1'b1;
      valid_q  <= '0;
    end else begin
      if (goes) begins_q <= held.last;
      valid_q <= goes ? Slices'(1) << slice : '0;
    end
  end

  always_ff @(posedge mac_clk_i) begin
    first_q <= begins_q;
    beat_q  <= held;
  end

  // Drops are told now and then, as a counter of a slice adds only so often.
  localparam int unsigned TellCycles = 32;

  logic [$clog2(TellCycles)-1:0] tick_q;
  logic                          tells_q;

  always_ff @(posedge mac_clk_i or negedge mac_rst_ni) begin
    if (!mac_rst_ni) begin
      tick_q  <= '0;
      tells_q <= 1'b0;
    end else begin
      tick_q  <= tick_q + 1'b1;
      tells_q <= &tick_q;
    end
  end

  for (genvar i = 0; i < Slices; i++) begin : gen_slice
    logic       dropped, dropped_q, tells, told, drops_ready, queue_valid, queue_ready, out_valid, out_ready;
    logic       unused_levels, is_filling, is_empty;
    logic [5:0] drops_q, drops;
    wide_t      queued, out;

    frame_queue #(
      .Beats  (QueueBytes / Bytes),
      .Longest(Longest),
      .Width  ($bits(wide_t))
    ) u_queue (
      .clk_i       (mac_clk_i),
      .rst_ni      (mac_rst_ni),
      .s_valid_i   (valid_q[i]),
      .s_first_i   (first_q),
      .s_beat_i    (beat_q),
      .dropped_o   (dropped),
      .m_valid_o   (queue_valid),
      .m_ready_i   (queue_ready),
      .m_beat_o    (queued),
      .is_filling_o(is_filling),
      .is_empty_o  (is_empty)
    );

    assign unused_levels = is_filling ^ is_empty;

    cross_fifo #(
      .Width($bits(wide_t)),
      .Depth(CrossBeats)
    ) u_cross (
      .s_clk_i  (mac_clk_i),
      .s_rst_ni (mac_rst_ni),
      .s_valid_i(queue_valid),
      .s_ready_o(queue_ready),
      .s_data_i (queued),
      .m_clk_i  (clk_i),
      .m_rst_ni (rst_ni),
      .m_valid_o(out_valid),
      .m_ready_i(out_ready),
      .m_data_o (out)
    );

    beats_narrow #(
      .Width(Width)
    ) u_narrow (
      .clk_i,
      .rst_ni,
      .s_valid_i(out_valid),
      .s_ready_o(out_ready),
      .s_last_i (out.last),
      .s_error_i(out.error),
      .s_extra_i(out.extra),
      .s_data_i (out.data),
      .m_valid_o(m_tvalid_o[i]),
      .m_ready_i(m_tready_i[i]),
      .m_last_o (m_tlast_o[i]),
      .m_error_o(m_tuser_o[i]),
      .m_keep_o (m_tkeep_o[i]),
      .m_data_o (m_tdata_o[i])
    );

    // --- What was dropped ---
    assign tells = tells_q && drops_q != '0 && drops_ready;

    always_ff @(posedge mac_clk_i or negedge mac_rst_ni) begin
      if (!mac_rst_ni) begin
        dropped_q <= 1'b0;
        drops_q   <= '0;
      end else begin
        dropped_q <= dropped;
        drops_q   <= (tells ? '0 : drops_q) + 6'(dropped_q);
      end
    end

    cross_fifo #(
      .Width(6),
      .Depth(4)
    ) u_drops (
      .s_clk_i  (mac_clk_i),
      .s_rst_ni (mac_rst_ni),
      .s_valid_i(tells),
      .s_ready_o(drops_ready),
      .s_data_i (drops_q),
      .m_clk_i  (clk_i),
      .m_rst_ni (rst_ni),
      .m_valid_o(told),
      .m_ready_i(1'b1),
      .m_data_o (drops)
    );

    assign m_dropped_o[i] = told ? drops : '0;
  end

endmodule
