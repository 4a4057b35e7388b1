// From the slices of a netfold_switch_sliced to the MAC of a fast port: whole frames, the slices in turn. A MAC takes a
// frame's beats without a pause, and a slice gives them more slowly. So a frame waits on the MAC's side of the crossing
// until all of it is there; a slice that finds no room there waits.
module slice_merger
  import switch_pkg::*;
#(
  parameter int unsigned Slices     = 8,    // a power of two, 2 to 128
  parameter int unsigned Width      = 512,  // a power of two, 64 to 512
  parameter int unsigned QueueBytes = 4096  // of a slice: a power of two, more than two of the longest frames
) (
  input  logic                    clk_i,
  input  logic                    rst_ni,
  input  logic [Slices-1:0]       s_tvalid_i,
  output logic [Slices-1:0]       s_tready_o,
  input  logic [Slices-1:0][63:0] s_tdata_i,
  input  logic [Slices-1:0][7:0]  s_tkeep_i,
  input  logic [Slices-1:0]       s_tlast_i,
  input  logic [Slices-1:0]       s_tuser_i,  // with the last beat: to be sent damaged

  input  logic                    mac_clk_i,
  input  logic                    mac_rst_ni,
  output logic                    m_tvalid_o,
  input  logic                    m_tready_i,
  output logic [Width-1:0]        m_tdata_o,
  output logic [Width/8-1:0]      m_tkeep_o,
  output logic                    m_tlast_o,
  output logic                    m_tuser_o
);

  localparam int unsigned Bytes      = Width / 8;
  localparam int unsigned ExtraWidth = $clog2(Bytes);
  localparam int unsigned CrossBeats = 2048 / Width < 8 ? 8 : 2048 / Width;

  typedef struct packed {
    logic                  error;
    logic [ExtraWidth-1:0] extra;  // of the last: valid bytes less one
    logic [Width-1:0]      data;
  } wide_t;

  // --- Of each slice: frames that are here as a whole ---
  logic  [Slices-1:0] valid, ready, last;
  wide_t [Slices-1:0] beat;

  for (genvar i = 0; i < Slices; i++) begin : gen_slice
    logic  in_valid, in_ready, in_last, crossed_valid, crossed_ready, crossed_last;
    wide_t in, crossed;

    beats_widen #(
      .Width(Width)
    ) u_widen (
      .clk_i,
      .rst_ni,
      .s_valid_i(s_tvalid_i[i]),
      .s_ready_o(s_tready_o[i]),
      .s_last_i (s_tlast_i[i]),
      .s_error_i(s_tuser_i[i]),
      .s_keep_i (s_tkeep_i[i]),
      .s_data_i (s_tdata_i[i]),
      .m_valid_o(in_valid),
      .m_ready_i(in_ready),
      .m_last_o (in_last),
      .m_error_o(in.error),
      .m_extra_o(in.extra),
      .m_data_o (in.data)
    );

    cross_fifo #(
      .Width($bits(wide_t) + 1),
      .Depth(CrossBeats)
    ) u_cross (
      .s_clk_i  (clk_i),
      .s_rst_ni (rst_ni),
      .s_valid_i(in_valid),
      .s_ready_o(in_ready),
      .s_data_i ({in_last, in}),
      .m_clk_i  (mac_clk_i),
      .m_rst_ni (mac_rst_ni),
      .m_valid_o(crossed_valid),
      .m_ready_i(crossed_ready),
      .m_data_o ({crossed_last, crossed})
    );

    frame_gate #(
      .Width     ($bits(wide_t)),
      .FrameBeats(FrameBytesMax / Bytes + 1),
      .Depth     (QueueBytes / Bytes),
      .Whole     (1'b1)
    ) u_gate (
      .clk_i    (mac_clk_i),
      .rst_ni   (mac_rst_ni),
      .s_valid_i(crossed_valid),
      .s_ready_o(crossed_ready),
      .s_last_i (crossed_last),
      .s_data_i (crossed),
      .m_valid_o(valid[i]),
      .m_ready_i(ready[i]),
      .m_last_o (last[i]),
      .m_data_o (beat[i])
    );
  end

  // --- Slices in turn. The next one is chosen while a frame ends ---
  logic [Slices-1:0] chosen_q, asks, grant;
  logic              is_free, loads, out_valid_q, out_last_q, skid_ready, last_out;
  wide_t             chosen, out_q;

  assign asks     = valid & ~chosen_q;
  assign ready    = loads ? chosen_q : '0;
  assign last_out = |(chosen_q & last);
  assign is_free  = chosen_q == '0 || (loads && last_out);

  round_robin #(
    .Requests(Slices)
  ) u_turns (
    .clk_i    (mac_clk_i),
    .rst_ni   (mac_rst_ni),
    .request_i(asks),
    .take_i   (is_free && asks != '0),
    .grant_o  (grant)
  );

  always_comb begin
    chosen = '0;
    for (int unsigned from = 0; from < Slices; from++) if (chosen_q[from]) chosen |= beat[from];
  end

  assign loads = !out_valid_q || skid_ready;

  always_ff @(posedge mac_clk_i or negedge mac_rst_ni) begin
    if (!mac_rst_ni) begin
      chosen_q    <= '0;
      out_valid_q <= 1'b0;
    end else begin
      if (is_free) chosen_q <= grant;
      if (loads) out_valid_q <= chosen_q != '0;
    end
  end

  always_ff @(posedge mac_clk_i) begin
    if (loads) begin
      out_q      <= chosen;
      out_last_q <= last_out;
    end
  end

  logic [Bytes-1:0] keep;

  assign keep = out_last_q ? {Bytes{1'b1}} >> ~out_q.extra : '1;

  stream_skid #(
    .Width(2 + Bytes + Width)
  ) u_skid (
    .clk_i    (mac_clk_i),
    .rst_ni   (mac_rst_ni),
    .s_valid_i(out_valid_q),
    .s_ready_o(skid_ready),
    .s_data_i ({out_last_q && out_q.error, out_last_q, keep, out_q.data}),
    .m_valid_o(m_tvalid_o),
    .m_ready_i(m_tready_i),
    .m_data_o ({m_tuser_o, m_tlast_o, m_tkeep_o, m_tdata_o})
  );

endmodule
