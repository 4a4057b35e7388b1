// Who is to blame for a place that is not full? It is not the lowest missing rank, which may itself wait for the
// acknowledgement of a dead one and repeat its packets. It is the rank that sends nothing at all: first a rank that has
// sent nothing in this epoch, then the missing rank that has been silent for longest. No clock is needed for that, only
// the order in which ports were heard. The law is RoceJob::longest_silent's.
module silence #(
  parameter int unsigned Ports = 8,
  parameter int unsigned Jobs  = 1,
  localparam int unsigned PortBits = $clog2(Ports),
  localparam int unsigned JobBits  = Jobs > 1 ? $clog2(Jobs) : 1
) (
  input  logic                                     clk_i,
  input  logic                                     rst_ni,

  input  logic [Ports-1:0][Jobs-1:0]               heard_i,
  input  logic [Jobs-1:0][Ports-1:0]               ranks_i,         // that there are
  input  logic [Jobs-1:0][Ports-1:0]               has_rank_i,      // by rank: it was heard in this epoch
  input  logic [Jobs-1:0][Ports-1:0][PortBits-1:0] port_of_rank_i,

  input  logic [JobBits-1:0]                       job_i,
  input  logic [Ports-1:0]                         missed_i,        // ports that fold and have not come
  output logic [PortBits-1:0]                      rank_o
);

  logic [Jobs-1:0][Ports-1:0][Ports-1:0] before_q;  // [a][b]: a was heard before b
  logic [Ports-1:0]                      is_longest;

  for (genvar job = 0; job < Jobs; job++) begin : gen_job
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        before_q[job] <= '0;
      end else begin
        for (int unsigned a = 0; a < Ports; a++) begin
          for (int unsigned b = 0; b < Ports; b++) begin
            if (heard_i[b][job]) before_q[job][a][b] <= !heard_i[a][job];
            else if (heard_i[a][job]) before_q[job][a][b] <= 1'b0;
          end
        end
      end
    end
  end

  always_comb begin
    for (int unsigned port = 0; port < Ports; port++) begin
      is_longest[port] = missed_i[port];
      for (int unsigned other = 0; other < Ports; other++) begin
        if (missed_i[other] && before_q[job_i][other][port]) is_longest[port] = 1'b0;
      end
    end
  end

  always_comb begin
    rank_o = '0;
    for (int unsigned rank = Ports; rank >= 1; rank--) begin
      if (has_rank_i[job_i][rank-1] && is_longest[port_of_rank_i[job_i][rank-1]]) rank_o = PortBits'(rank - 1);
    end
    for (int unsigned rank = Ports; rank >= 1; rank--) begin
      if (ranks_i[job_i][rank-1] && !has_rank_i[job_i][rank-1]) rank_o = PortBits'(rank - 1);
    end
  end

endmodule
