// A FIFO with a registered output, so that its memory can be a block RAM. A beat can be read two cycles after it was
// written; one beat a cycle each way, also when full and taken from.
module stream_fifo #(
  parameter int unsigned Width  = 32,
  parameter int unsigned Depth  = 16,    // a power of two; the output register holds one beat more
  parameter bit          Passes = 1'b0,  // what comes into an empty one can be taken one cycle later
  localparam int unsigned LevelWidth = $clog2(Depth + 2)
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,

  input  logic                  s_valid_i,
  output logic                  s_ready_o,
  input  logic [Width-1:0]      s_data_i,

  output logic                  m_valid_o,
  input  logic                  m_ready_i,
  output logic [Width-1:0]      m_data_o,

  output logic [LevelWidth-1:0] level_o  // beats inside, the output register's included
);

  localparam int unsigned PointerWidth = $clog2(Depth);

  logic [Width-1:0]        memory [Depth];
  logic [PointerWidth:0]   write_q, read_q;  // one bit more than an address: full and empty differ
  logic                    out_valid_q, passed_q;
  logic [Width-1:0]        out_q, passing_q;
  logic                    is_empty_q, is_full_q, holds_one, lacks_one, push, pull, pass;

  assign holds_one = write_q == read_q + 1'b1;  // beside the output register
  assign lacks_one = write_q + 1'b1 == (read_q ^ (PointerWidth + 1)'(Depth));
  assign s_ready_o = !is_full_q;
  assign m_valid_o = out_valid_q;
  assign m_data_o  = Passes && passed_q ? passing_q : out_q;
  assign pass      = Passes && is_empty_q && s_valid_i && (!out_valid_q || m_ready_i);
  assign push      = s_valid_i && s_ready_o && !pass;
  assign pull      = !is_empty_q && (!out_valid_q || m_ready_i);
  assign level_o   = LevelWidth'(write_q - read_q) + LevelWidth'(out_valid_q);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      write_q     <= '0;
      read_q      <= '0;
      is_empty_q  <= 1'b1;
      is_full_q   <= 1'b0;
      out_valid_q <= 1'b0;
    end else begin
      if (push) write_q <= write_q + 1'b1;
      if (pull) read_q <= read_q + 1'b1;
      if (push || pull) begin
        is_empty_q <= !push && holds_one;
        is_full_q  <= !pull && lacks_one;
      end
      out_valid_q <= pull || pass || (out_valid_q && !m_ready_i);
    end
  end

  always_ff @(posedge clk_i) begin
    if (push) memory[write_q[PointerWidth-1:0]] <= s_data_i;
    if (pull) out_q <= memory[read_q[PointerWidth-1:0]];
    if (pass) passing_q <= s_data_i;
    if (pull || pass) passed_q <= pass;
  end

endmodule
