// stream_queue: the scoreboard's properties.
module stream_queue_formal (
  input logic       clk_i,
  input logic       s_valid_i,
  input logic [7:0] s_data_i,
  input logic       m_ready_i,
  input logic [7:0] follow_i
);

  localparam int unsigned Depth = 4;

  logic       first = 1'b1;
  logic [7:0] was_follow;

  always_ff @(posedge clk_i) begin
    first      <= 1'b0;
    was_follow <= follow_i;
  end

  always_comb if (!first) assume (follow_i == was_follow);

  logic       s_ready, m_valid, followed;
  logic [7:0] m_data, in, out, data, behind;

  stream_queue #(.Width(8), .Depth(Depth)) u_queue (
    .clk_i, .rst_ni(!first), .s_valid_i, .s_ready_o(s_ready), .s_data_i,
    .m_valid_o(m_valid), .m_ready_i, .m_data_o(m_data)
  );

  stream_scoreboard u_scoreboard (
    .clk_i, .rst_ni(!first), .in_i(s_valid_i && s_ready), .in_data_i(s_data_i), .m_valid_i(m_valid),
    .m_ready_i, .m_data_i(m_data), .follow_i, .in_o(in), .out_o(out), .followed_o(followed), .data_o(data)
  );

  assign behind = follow_i - out;

  always_comb begin
    if (!first) begin
      assert (8'(3'(u_queue.write_q - u_queue.read_q)) == in - out);
      assert (u_queue.is_empty_q == (u_queue.write_q == u_queue.read_q));
      assert (u_queue.is_full_q == (in - out == 8'(Depth)));
      assert (in - out <= 8'(Depth));
      assert (m_valid == (in != out));
      if (followed) assert (u_queue.memory[2'(u_queue.read_q[1:0] + behind[1:0])] == data);
    end
  end

endmodule
