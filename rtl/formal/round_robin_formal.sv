// round_robin: it grants one of the requesters. A constant requester waits at most once for each of the others.
module round_robin_formal (
  input logic       clk_i,
  input logic [3:0] request_i,
  input logic       take_i,
  input logic [1:0] follow_i
);

  logic       first = 1'b1;
  logic [3:0] grant;
  logic [1:0] was_follow, next;  // next: the requester whose turn is first
  logic [2:0] waited;            // others served while the followed one asked

  round_robin #(.Requests(4)) u_arbiter (.clk_i, .rst_ni(!first), .request_i, .take_i, .grant_o(grant));

  assign next = u_arbiter.later_q[1] ? 2'd1 : u_arbiter.later_q[2] ? 2'd2 : u_arbiter.later_q[3] ? 2'd3 : 2'd0;

  always_ff @(posedge clk_i) begin
    first      <= 1'b0;
    was_follow <= follow_i;
    if (first || !request_i[follow_i] || (take_i && grant[follow_i])) begin
      waited <= '0;
    end else if (take_i) begin
      waited <= waited + 1'b1;
    end
  end

  always_comb begin
    if (!first) begin
      assume (follow_i == was_follow);
      if (take_i) assume (request_i != '0);
      assert ((grant & request_i) == grant);
      assert ((grant == '0) == (request_i == '0));
      assert ((grant & (grant - 1'b1)) == '0);
      assert (waited <= 3'd3);
      // Induction starts in any state: the mask is all places above one, and each turn of others brings the followed
      // turn nearer.
      assert (u_arbiter.later_q inside {4'b0000, 4'b1000, 4'b1100, 4'b1110});
      assert (waited + 3'(2'(follow_i - next)) <= 3'd3);
    end
  end

endmodule
