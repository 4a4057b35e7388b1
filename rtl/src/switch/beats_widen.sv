// The 64 bits of a slice into beats of a fast port's width. Words behind the end of a frame mean nothing.
module beats_widen
  import switch_pkg::*;
#(
  parameter int unsigned Width = 512,  // a power of two, at least 64
  localparam int unsigned ExtraWidth = $clog2(Width / 8)
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,

  input  logic                  s_valid_i,
  output logic                  s_ready_o,
  input  logic                  s_last_i,
  input  logic                  s_error_i,  // with the last
  input  logic [7:0]            s_keep_i,
  input  logic [63:0]           s_data_i,

  output logic                  m_valid_o,
  input  logic                  m_ready_i,
  output logic                  m_last_o,
  output logic                  m_error_o,
  output logic [ExtraWidth-1:0] m_extra_o,  // valid bytes less one
  output logic [Width-1:0]      m_data_o
);

  localparam int unsigned Words      = Width / 64;
  localparam int unsigned IndexWidth = Words > 1 ? $clog2(Words) : 1;

  logic [Words-1:0][63:0] words_q;
  logic [IndexWidth-1:0]  index_q;
  logic [ExtraWidth-1:0]  extra_q;
  logic                   takes, ends, valid_q, last_q, error_q;

  assign s_ready_o = !valid_q || m_ready_i;
  assign takes     = s_valid_i && s_ready_o;
  assign ends      = s_last_i || index_q == IndexWidth'(Words - 1);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      index_q <= '0;
      valid_q <= 1'b0;
    end else begin
      if (takes) index_q <= ends ? '0 : index_q + 1'b1;
      valid_q <= (takes && ends) || (valid_q && !m_ready_i);
    end
  end

  always_ff @(posedge clk_i) begin
    if (takes) begin
      for (int unsigned i = 0; i < Words; i++) if (index_q == IndexWidth'(i)) words_q[i] <= s_data_i;
      last_q  <= s_last_i;
      error_q <= s_last_i && s_error_i;
      extra_q <= ExtraWidth'({index_q, extra_of(s_keep_i)});
    end
  end

  assign m_valid_o = valid_q;
  assign m_last_o  = last_q;
  assign m_error_o = error_q;
  assign m_extra_o = extra_q;
  assign m_data_o  = words_q;

endmodule
