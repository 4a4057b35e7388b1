// A FIFO between two clocks, in distributed memory. Each side's pointer crosses as a Gray code, of which one bit
// changes at a time: the other side sees the old one or the new one, never a third. A beat can be read two to three
// cycles of the reader after it was written.
module cross_fifo #(
  parameter int unsigned Width = 32,
  parameter int unsigned Depth = 32  // a power of two, at least four
) (
  input  logic             s_clk_i,
  input  logic             s_rst_ni,
  input  logic             s_valid_i,
  output logic             s_ready_o,
  input  logic [Width-1:0] s_data_i,

  input  logic             m_clk_i,
  input  logic             m_rst_ni,
  output logic             m_valid_o,
  input  logic             m_ready_i,
  output logic [Width-1:0] m_data_o
);

  localparam int unsigned PointerWidth = $clog2(Depth);

  typedef logic [PointerWidth:0] pointer_t;  // one bit more than an address: full and empty differ

  function automatic pointer_t gray(pointer_t binary);
    return binary ^ (binary >> 1);
  endfunction

  logic [Width-1:0] memory [Depth];
  pointer_t         write_q, write_d, write_gray_q, read_q, read_d, read_gray_q;
  pointer_t         next_gray, full_at;
  logic             is_full_q, push;
  (* ASYNC_REG = "TRUE" *) pointer_t write_meta_q, write_seen_q, read_meta_q, read_seen_q;

  // A Gray code differs in its two highest bits from the one Depth before it. is_full_q is a register, as long paths
  // begin there; so a place that is read is seen to be free a cycle later.
  assign push      = s_valid_i && !is_full_q;
  assign next_gray = gray(write_q + 1'b1);
  assign full_at   = read_seen_q ^ (pointer_t'(3) << (PointerWidth - 1));
  assign s_ready_o = !is_full_q;
  assign m_valid_o = read_gray_q != write_seen_q;
  assign m_data_o  = memory[read_q[PointerWidth-1:0]];
  assign write_d   = write_q + pointer_t'(push);
  assign read_d    = read_q + pointer_t'(m_valid_o && m_ready_i);

  always_ff @(posedge s_clk_i or negedge s_rst_ni) begin
    if (!s_rst_ni) begin
      write_q      <= '0;
      write_gray_q <= '0;
      is_full_q    <= 1'b0;
      read_meta_q  <= '0;
      read_seen_q  <= '0;
    end else begin
      write_q      <= write_d;
      if (push) write_gray_q <= next_gray;
      is_full_q    <= push ? next_gray == full_at : write_gray_q == full_at;
      read_meta_q  <= read_gray_q;
      read_seen_q  <= read_meta_q;
    end
  end

  always_ff @(posedge s_clk_i) begin
    if (push) memory[write_q[PointerWidth-1:0]] <= s_data_i;
  end

  always_ff @(posedge m_clk_i or negedge m_rst_ni) begin
    if (!m_rst_ni) begin
      read_q       <= '0;
      read_gray_q  <= '0;
      write_meta_q <= '0;
      write_seen_q <= '0;
    end else begin
      read_q       <= read_d;
      read_gray_q  <= gray(read_d);
      write_meta_q <= write_gray_q;
      write_seen_q <= write_meta_q;
    end
  end

endmodule
