// stream_fork: each taker gets a beat that is for it once, and no other. A beat goes when all its takers have it, and no
// later.
module stream_fork_formal (
  input logic       clk_i,
  input logic       s_valid_i,
  input logic [1:0] to_i,
  input logic [1:0] m_ready_i
);

  logic       first = 1'b1;
  logic       s_ready, was_waiting;
  logic [1:0] m_valid, was_to, has_q;  // has_q: the takers that have the beat that is here

  stream_fork u_fork (
    .clk_i, .rst_ni(!first), .s_valid_i, .s_ready_o(s_ready), .to_i, .m_valid_o(m_valid), .m_ready_i
  );

  always_ff @(posedge clk_i) begin
    first       <= 1'b0;
    was_waiting <= !first && s_valid_i && !s_ready;
    was_to      <= to_i;
    if (first || (s_valid_i && s_ready)) begin
      has_q <= '0;
    end else begin
      has_q <= has_q | (m_valid & m_ready_i);
    end
  end

  always_comb begin
    if (was_waiting) assume (s_valid_i && to_i == was_to);
    if (!first) begin
      assert (u_fork.took_q == has_q);
      if (has_q != '0) assert (was_waiting && (has_q & ~to_i) == '0);
      if (!s_valid_i) assert (m_valid == '0 && has_q == '0);
      for (int i = 0; i < 2; i++) begin
        assert (m_valid[i] == (s_valid_i && to_i[i] && !has_q[i]));
      end
      if (s_valid_i) assert (s_ready == (to_i == (has_q | (m_valid & m_ready_i))));
      cover (s_valid_i && s_ready && to_i == 2'b11 && has_q == 2'b01);
      cover (s_valid_i && s_ready && to_i == 2'b11 && has_q == 2'b10);
      cover (s_valid_i && s_ready && to_i == 2'b11 && has_q == 2'b00);
    end
  end

endmodule
