// Beats of a fast port's width into the 64 bits of a slice, word by word.
module beats_narrow
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
  input  logic [ExtraWidth-1:0] s_extra_i,  // of the last: valid bytes less one
  input  logic [Width-1:0]      s_data_i,

  output logic                  m_valid_o,
  input  logic                  m_ready_i,
  output logic                  m_last_o,
  output logic                  m_error_o,
  output logic [7:0]            m_keep_o,
  output logic [63:0]           m_data_o
);

  localparam int unsigned Words      = Width / 64;
  localparam int unsigned IndexWidth = Words > 1 ? $clog2(Words) : 1;

  typedef logic [IndexWidth-1:0] index_t;

  logic [Words-1:0][63:0] words;
  index_t                 index_q, final_index;
  logic                   loads, ends, valid_q, last_q, error_q;
  logic [7:0]             keep_q;
  logic [63:0]            data_q;

  assign words       = s_data_i;
  assign final_index = s_last_i ? index_t'(s_extra_i >> 3) : index_t'(Words - 1);
  assign ends        = index_q == final_index;
  assign loads       = !valid_q || m_ready_i;
  assign s_ready_o   = loads && ends;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      index_q <= '0;
      valid_q <= 1'b0;
    end else if (loads) begin
      valid_q <= s_valid_i;
      if (s_valid_i) index_q <= ends ? '0 : index_q + 1'b1;
    end
  end

  always_ff @(posedge clk_i) begin
    if (loads) begin
      data_q  <= words[index_q];
      last_q  <= s_last_i && ends;
      error_q <= s_error_i;
      keep_q  <= s_last_i && ends ? keep_of(s_extra_i[2:0]) : '1;
    end
  end

  assign m_valid_o = valid_q;
  assign m_last_o  = last_q;
  assign m_error_o = last_q && error_q;
  assign m_keep_o  = keep_q;
  assign m_data_o  = data_q;

endmodule
