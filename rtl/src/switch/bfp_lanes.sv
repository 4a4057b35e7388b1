// Folds pairs of elements of block floating point, whose ranks' numbers are added pairwise in their order as in
// adder_tree. Each rank's exponent is that of both elements of a pair. Sums are FP32, never a subnormal number; one of
// a block that is not a number at some rank is any number.
module bfp_lanes #(
  parameter int unsigned Ranks = 8,
  parameter int unsigned Pairs = 2,
  localparam int unsigned RankPairs = (Ranks + 1) / 2
) (
  input  logic                                   clk_i,
  input  logic [Ranks-1:0][Pairs-1:0][7:0]       exponent_i,
  input  logic [Ranks-1:0][Pairs-1:0][1:0][7:0]  mantissa_i,
  output logic [Pairs-1:0][1:0][31:0]            sum_o  // two cycles later than adder_tree's
);

  logic [RankPairs-1:0][Pairs-1:0][1:0][31:0] sums;

  for (genvar n = 0; n < RankPairs; n++) begin : gen_ranks
    localparam bit          IsAlone = 2 * n + 1 == Ranks;
    localparam int unsigned Other   = IsAlone ? 2 * n : 2 * n + 1;

    for (genvar pair = 0; pair < Pairs; pair++) begin : gen_pair
      bfp_pair_adder #(
        .Elements(2)
      ) u_adder (
        .clk_i,
        .a_exponent_i(exponent_i[2*n][pair]),
        .b_exponent_i(IsAlone ? '0 : exponent_i[Other][pair]),
        .a_i         (mantissa_i[2*n][pair]),
        .b_i         (mantissa_i[Other][pair]),
        .sum_o       (sums[n][pair])
      );
    end
  end

  if (RankPairs == 1) begin : gen_two
    assign sum_o = sums[0];
  end else begin : gen_more
    adder_tree #(
      .Ranks       (RankPairs),
      .Lanes       (2 * Pairs),
      .IntegerLanes(0),
      .Plain       (1'b1)
    ) u_tree (
      .clk_i,
      .is_float_i(1'b1),
      .numbers_i (sums),
      .sum_o
    );
  end

endmodule
