// Frames from a source that cannot wait, into another clock. Should there be no room, the frame ends there, damaged, and
// its rest is left out. A source that can wait gives a beat only while `s_ready_o` is high, and loses none.
module frame_cross #(
  parameter int unsigned Width   = 64,
  parameter bit          Crosses = 1'b1  // 0: m_clk_i is s_clk_i
) (
  input  logic             s_clk_i,
  input  logic             s_rst_ni,
  input  logic             s_valid_i,
  output logic             s_ready_o,
  input  logic             s_last_i,
  input  logic             s_error_i,  // with the last beat: a damaged frame
  input  logic [Width-1:0] s_data_i,

  input  logic             m_clk_i,
  input  logic             m_rst_ni,
  output logic             m_valid_o,
  input  logic             m_ready_i,
  output logic             m_last_o,
  output logic             m_error_o,
  output logic [Width-1:0] m_data_o
);

  logic             valid, ready, skips_q, owes_q;  // owes_q: the end of a frame that did not fit
  logic [Width+1:0] beat, out;

  assign s_ready_o = ready;
  assign valid = owes_q || (s_valid_i && !skips_q);
  assign beat = owes_q ? {2'b11, {Width{1'b0}}} : {s_last_i && s_error_i, s_last_i, s_data_i};
  assign {m_error_o, m_last_o, m_data_o} = out;

  always_ff @(posedge s_clk_i or negedge s_rst_ni) begin
    if (!s_rst_ni) begin
      skips_q <= 1'b0;
      owes_q  <= 1'b0;
    end else begin
      if (s_valid_i) skips_q <= (skips_q || owes_q || !ready) && !s_last_i;
      owes_q <= valid && !ready;
    end
  end

  if (Crosses) begin : gen_cross
    cross_fifo #(.Width(Width + 2)) u_fifo (
      .s_clk_i, .s_rst_ni, .s_valid_i(valid), .s_ready_o(ready), .s_data_i(beat),
      .m_clk_i, .m_rst_ni, .m_valid_o, .m_ready_i, .m_data_o(out)
    );
  end else begin : gen_queue
    logic unused_clock;
    assign unused_clock = ^{m_clk_i, m_rst_ni};

    stream_queue #(.Width(Width + 2), .Depth(32)) u_queue (
      .clk_i(s_clk_i), .rst_ni(s_rst_ni), .s_valid_i(valid), .s_ready_o(ready), .s_data_i(beat),
      .m_valid_o, .m_ready_i, .m_data_o(out)
    );
  end

endmodule
