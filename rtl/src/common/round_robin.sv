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

  logic [Requests-1:0] later_q, later, after;  // later_q: all after the one served last
  logic                is_later;

  // Without carry chains: a path that enters one takes a level more.
  function automatic logic [Requests-1:0] after_first(logic [Requests-1:0] requests);
    after_first = '0;
    for (int unsigned i = 1; i < Requests; i++) after_first[i] = after_first[i-1] || requests[i-1];
  endfunction

  assign later    = request_i & later_q;
  assign is_later = |later;
  assign after    = is_later ? after_first(later) : after_first(request_i);
  assign grant_o  = (is_later ? later : request_i) & ~after;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      later_q <= '0;
    end else if (take_i) begin
      later_q <= after;
    end
  end

endmodule
