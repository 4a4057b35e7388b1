// A small queue in registers or distributed memory: what is written can be taken in the next cycle. For commands, where
// few places are needed and a block RAM would be wasted.
module stream_queue #(
  parameter int unsigned Width = 8,
  parameter int unsigned Depth = 4  // a power of two, at least two
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

  localparam int unsigned PointerWidth = $clog2(Depth);

  logic [Width-1:0]      memory [Depth];
  logic [PointerWidth:0] write_q, read_q;

  assign m_valid_o = write_q != read_q;
  assign s_ready_o = write_q != (read_q ^ (PointerWidth + 1)'(Depth));
  assign m_data_o  = memory[read_q[PointerWidth-1:0]];

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      write_q <= '0;
      read_q  <= '0;
    end else begin
      if (s_valid_i && s_ready_o) write_q <= write_q + 1'b1;
      if (m_valid_o && m_ready_i) read_q <= read_q + 1'b1;
    end
  end

  always_ff @(posedge clk_i) begin
    if (s_valid_i && s_ready_o) memory[write_q[PointerWidth-1:0]] <= s_data_i;
  end

endmodule
