// stream_fifo, with and without passing: the scoreboard's properties; the level equals beats in less beats out.
module stream_fifo_formal (
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

  for (genvar passes = 0; passes < 2; passes++) begin : gen_fifo
    logic       s_ready, m_valid, followed;
    logic [2:0] level;
    logic [7:0] m_data, in, out, data, behind;

    stream_fifo #(.Width(8), .Depth(Depth), .Passes(passes == 1)) u_fifo (
      .clk_i, .rst_ni(!first), .s_valid_i, .s_ready_o(s_ready), .s_data_i,
      .m_valid_o(m_valid), .m_ready_i, .m_data_o(m_data), .level_o(level)
    );

    stream_scoreboard u_scoreboard (
      .clk_i, .rst_ni(!first), .in_i(s_valid_i && s_ready), .in_data_i(s_data_i), .m_valid_i(m_valid),
      .m_ready_i, .m_data_i(m_data), .follow_i, .in_o(in), .out_o(out), .followed_o(followed), .data_o(data)
    );

    assign behind = follow_i - out - 8'(m_valid);  // beats of the memory before the followed one

    always_comb begin
      if (!first) begin
        assert (8'(level) == in - out);
        assert (level <= 3'(Depth + 1));
        assert (3'(u_fifo.write_q - u_fifo.read_q) <= 3'(Depth));
        assert (u_fifo.is_empty_q == (u_fifo.write_q == u_fifo.read_q));
        assert (s_ready == (3'(u_fifo.write_q - u_fifo.read_q) < 3'(Depth)));
        // Induction starts in any state: the content equals the beats that the scoreboard saw enter.
        if (followed && out == follow_i && m_valid) assert (m_data == data);
        if (followed && !(out == follow_i && m_valid))
          assert (u_fifo.memory[2'(u_fifo.read_q[1:0] + behind[1:0])] == data);
      end
    end
  end

endmodule
