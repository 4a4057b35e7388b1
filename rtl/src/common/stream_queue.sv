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
  logic                  is_empty_q, is_full_q, holds_one, lacks_one, push, pull;

  assign holds_one = write_q == read_q + 1'b1;
  assign lacks_one = write_q + 1'b1 == (read_q ^ (PointerWidth + 1)'(Depth));
  assign m_valid_o = !is_empty_q;
  assign s_ready_o = !is_full_q;
  assign m_data_o  = memory[read_q[PointerWidth-1:0]];
  assign push      = s_valid_i && s_ready_o;
  assign pull      = !is_empty_q && m_ready_i;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      write_q    <= '0;
      read_q     <= '0;
      is_empty_q <= 1'b1;
      is_full_q  <= 1'b0;
    end else begin
      if (push) write_q <= write_q + 1'b1;
      if (pull) read_q <= read_q + 1'b1;
      // Registers, as most paths out of a queue begin here.
      if (push || pull) begin
        is_empty_q <= !push && holds_one;
        is_full_q  <= !pull && lacks_one;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (push) memory[write_q[PointerWidth-1:0]] <= s_data_i;
  end

endmodule
