// A delay by a number of cycles; without a reset, so that shift registers of LUTs hold it.
module delay_line #(
  parameter int unsigned Width  = 1,
  parameter int unsigned Cycles = 8  // at least 1
) (
  input  logic             clk_i,
  input  logic [Width-1:0] data_i,
  output logic [Width-1:0] data_o
);

  logic [Width-1:0] stage_q [Cycles];

  always_ff @(posedge clk_i) begin
    stage_q[0] <= data_i;
    for (int unsigned stage = 1; stage < Cycles; stage++) stage_q[stage] <= stage_q[stage-1];
  end

  assign data_o = stage_q[Cycles-1];

endmodule
