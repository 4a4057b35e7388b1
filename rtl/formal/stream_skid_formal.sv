// stream_skid: the scoreboard's properties, and it holds at most one beat.
module stream_skid_formal (
  input logic       clk_i,
  input logic       s_valid_i,
  input logic [7:0] s_data_i,
  input logic       m_ready_i,
  input logic [7:0] follow_i
);

  logic       first = 1'b1;
  logic       s_ready, m_valid, followed, was_waiting;
  logic [7:0] m_data, in, out, data, was_follow, was_data;

  stream_skid #(.Width(8)) u_skid (
    .clk_i, .rst_ni(!first), .s_valid_i, .s_ready_o(s_ready), .s_data_i,
    .m_valid_o(m_valid), .m_ready_i, .m_data_o(m_data)
  );

  stream_scoreboard u_scoreboard (
    .clk_i, .rst_ni(!first), .in_i(s_valid_i && s_ready), .in_data_i(s_data_i), .m_valid_i(m_valid),
    .m_ready_i, .m_data_i(m_data), .follow_i, .in_o(in), .out_o(out), .followed_o(followed), .data_o(data)
  );

  always_ff @(posedge clk_i) begin
    first       <= 1'b0;
    was_follow  <= follow_i;
    was_waiting <= !first && s_valid_i && !s_ready;
    was_data    <= s_data_i;
  end

  always_comb begin
    if (!first) assume (follow_i == was_follow);
    if (was_waiting) assume (s_valid_i && s_data_i == was_data);
    if (!first) begin
      assert (s_ready == !u_skid.spare_full_q);
      assert (in - out == 8'(u_skid.spare_full_q));
      if (followed) assert (u_skid.spare_q == data);
      assert (m_valid == (s_valid_i || u_skid.spare_full_q));
      if (!u_skid.spare_full_q && s_valid_i) assert (m_data == s_data_i);  // passes in the same cycle
    end
  end

endmodule
