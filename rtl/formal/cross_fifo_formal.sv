// cross_fifo: order, no loss and no extra beats, for clocks of any frequency and phase. At most one bit of a crossing
// pointer changes at a time.
module cross_fifo_formal (
  input logic       s_clk_i,
  input logic       m_clk_i,
  input logic       step_i,   // a clock that ends the reset
  input logic       s_valid_i,
  input logic [3:0] s_data_i,
  input logic       m_ready_i,
  input logic [3:0] follow_i
);

  localparam int unsigned Depth = 4;

  logic       first = 1'b1;
  logic       s_ready, m_valid;
  logic [3:0] m_data;

  cross_fifo #(.Width(4), .Depth(Depth)) u_fifo (
    .s_clk_i, .s_rst_ni(!first), .s_valid_i, .s_ready_o(s_ready), .s_data_i,
    .m_clk_i, .m_rst_ni(!first), .m_valid_o(m_valid), .m_ready_i, .m_data_o(m_data)
  );

  function automatic logic [2:0] binary(logic [2:0] gray);
    return {gray[2], ^gray[2:1], ^gray};
  endfunction

  // Beats written and read, and the counts that each side has of the other, from the oldest to the newest.
  logic [3:0] in, out, data, was_follow;
  logic [2:0] order [6];
  logic [2:0] apart [5];

  assign order[0] = binary(u_fifo.read_seen_q);
  assign order[1] = binary(u_fifo.read_meta_q);
  assign order[2] = u_fifo.read_q;
  assign order[3] = binary(u_fifo.write_seen_q);
  assign order[4] = binary(u_fifo.write_meta_q);
  assign order[5] = u_fifo.write_q;

  for (genvar i = 0; i < 5; i++) begin : gen_apart
    assign apart[i] = order[i+1] - order[i];
  end

  always_ff @(posedge s_clk_i or posedge first) begin
    if (first) in <= '0;
    else if (s_valid_i && s_ready) in <= in + 1'b1;
  end

  always_ff @(posedge s_clk_i) if (s_valid_i && s_ready && in == follow_i) data <= s_data_i;

  always_ff @(posedge m_clk_i or posedge first) begin
    if (first) out <= '0;
    else if (m_valid && m_ready_i) out <= out + 1'b1;
  end

  // Bits of the crossing pointers that change at the next edge.
  logic [2:0] write_change, read_change;

  assign write_change = u_fifo.write_gray_q ^ (u_fifo.write_d ^ u_fifo.write_d >> 1);
  assign read_change  = u_fifo.read_gray_q ^ (u_fifo.read_d ^ u_fifo.read_d >> 1);

  always_ff @(posedge step_i) begin
    first      <= 1'b0;
    was_follow <= follow_i;
  end

  always_comb begin
    if (!first) begin
      assume (follow_i == was_follow);
      assert (u_fifo.write_gray_q == (u_fifo.write_q ^ u_fifo.write_q >> 1));
      assert (u_fifo.read_gray_q == (u_fifo.read_q ^ u_fifo.read_q >> 1));
      assert (6'(apart[0]) + 6'(apart[1]) + 6'(apart[2]) + 6'(apart[3]) + 6'(apart[4]) <= 6'(Depth));
      if (3'(order[5] - order[0]) == 3'(Depth)) assert (u_fifo.is_full_q);  // as far as the writer knows
      assert ((write_change & (write_change - 1'b1)) == '0);
      assert ((read_change & (read_change - 1'b1)) == '0);
      assert (in[2:0] == u_fifo.write_q && out[2:0] == u_fifo.read_q);
      assert (4'(in - out) <= 4'(Depth));
      if (4'(follow_i - out) < 4'(in - out)) assert (u_fifo.memory[follow_i[1:0]] == data);
      if (m_valid && out == follow_i) assert (m_data == data);
    end
  end

endmodule
