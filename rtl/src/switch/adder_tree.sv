// Adds the numbers of all ranks pairwise in their order: ((0 + 1) + (2 + 3)) + ((4 + 5) + ...), as core/numbers/fold.cc
// does. An absent rank is given as the neutral element: -0 for floats, 0 for integers. One beat a cycle, never a pause;
// sums of floats and of integers come alike, aggregation_pkg::AdderStages cycles a level later.
module adder_tree #(
  parameter int unsigned Ranks        = 8,
  parameter int unsigned Lanes        = 2,
  parameter int unsigned IntegerLanes = 2,  // the first; others add only floats
  parameter bit          Plain        = 1'b0,  // floats are what fp32_adder says of that
  localparam int unsigned Levels  = $clog2(Ranks),
  localparam int unsigned Stages  = aggregation_pkg::AdderStages,
  localparam int unsigned Latency = Stages * Levels
) (
  input  logic                           clk_i,
  input  logic                           is_float_i,  // with the numbers; integers wrap
  input  logic [Ranks-1:0][32*Lanes-1:0] numbers_i,
  output logic [32*Lanes-1:0]            sum_o
);

  localparam int unsigned Leaves = 2 ** Levels;

  logic is_float;

  delay_line #(
    .Width (1),
    .Cycles(Latency)
  ) u_is_float (
    .clk_i,
    .data_i(is_float_i),
    .data_o(is_float)
  );

  // Node n adds nodes 2n and 2n + 1; the leaves are nodes Leaves to 2 Leaves - 1, the sum is node 1.
  for (genvar lane = 0; lane < Lanes; lane++) begin : gen_lane
    logic [2*Leaves-1:1][31:0] floats;
    logic [31:0]               integer_sum;
    logic                      unused_floats;  // of those who are not there

    assign unused_floats = ^floats;

    for (genvar n = 1; n < 2 * Leaves; n++) begin : gen_node
      localparam int unsigned Level = $clog2(n + 1) - 1;                       // of the sum: 0
      localparam int unsigned First = (n - 2 ** Level) * (Leaves >> Level);    // rank below this node
      localparam int unsigned Right = First + (Leaves >> (Level + 1));         // ... below its right half

      if (First >= Ranks) begin : gen_nobody
        assign floats[n] = '0;  // not read
      end else if (n >= Leaves) begin : gen_leaf
        assign floats[n] = numbers_i[First][32*lane +: 32];
      end else if (Right >= Ranks) begin : gen_alone
        delay_line #(
          .Width (32),
          .Cycles(Stages)
        ) u_alone (
          .clk_i,
          .data_i(floats[2*n]),
          .data_o(floats[n])
        );
      end else begin : gen_pair
        fp32_adder #(
          .Plain (Plain),
          .Stages(Stages)
        ) u_adder (
          .clk_i,
          .en_i (1'b1),
          .a_i  (floats[2*n]),
          .b_i  (floats[2*n+1]),
          .sum_o(floats[n])
        );
      end
    end

    // Integers are added in a cycle a level, and wait for as long as floats take.
    if (lane < IntegerLanes) begin : gen_integers
      logic [2*Leaves-1:1][31:0] integers;

      for (genvar n = 1; n < 2 * Leaves; n++) begin : gen_place
        if (n >= Leaves) begin : gen_leaf
          assign integers[n] = n - Leaves < Ranks ? numbers_i[n-Leaves][32*lane +: 32] : '0;
        end else begin : gen_pair
          always_ff @(posedge clk_i) integers[n] <= integers[2*n] + integers[2*n+1];
        end
      end

      delay_line #(
        .Width (32),
        .Cycles(Latency - Levels)
      ) u_wait (
        .clk_i,
        .data_i(integers[1]),
        .data_o(integer_sum)
      );
    end else begin : gen_no_integers
      assign integer_sum = '0;
    end

    assign sum_o[32*lane +: 32] = is_float || lane >= IntegerLanes ? floats[1] : integer_sum;
  end

endmodule
