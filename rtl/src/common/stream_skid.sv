// A register slice with a spare place: cuts the ready path of a stream. Data pass through in the same cycle while the
// taker is ready; `s_ready_o` comes from a register. One beat a cycle.
module stream_skid #(
  parameter int unsigned Width = 32
) (
  input  logic             clk_i,
  input  logic             rst_ni,

  input  logic             s_valid_i,
  output logic             s_ready_o,
  input  logic [Width-1:0] s_data_i,

  output logic             m_valid_o,
  input  logic             m_ready_i,
  output logic [Width-1:0] m_data_o
);

  logic             spare_full_q;
  logic [Width-1:0] spare_q;

  assign s_ready_o = !spare_full_q;
  assign m_valid_o = spare_full_q || s_valid_i;
  assign m_data_o  = spare_full_q ? spare_q : s_data_i;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      spare_full_q <= 1'b0;
    end else begin
      spare_full_q <= m_valid_o && !m_ready_i;
    end
  end

  always_ff @(posedge clk_i) begin
    if (s_valid_i && s_ready_o) spare_q <= s_data_i;
  end

endmodule
