// Selects the next requester: the first after the one that was served last. Combinational but for that memory, so who
// asks all the time waits for each of the others once at most.
module round_robin #(
  parameter int unsigned Requests = 8
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic [Requests-1:0] request_i,
  input  logic                take_i,    // the one granted is served
  output logic [Requests-1:0] grant_o    // one bit, if any asks
);

  logic [Requests-1:0] later_q, candidates;  // later_q: all after the one served last

  assign candidates = |(request_i & later_q) ? request_i & later_q : request_i;
  assign grant_o    = candidates & (~candidates + 1'b1);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      later_q <= '0;
    end else if (take_i) begin
      later_q <= ~(grant_o | (grant_o - 1'b1));
    end
  end

endmodule
