// Selects one of several words by its number, in a tree of two-to-one choices: two levels of it are one LUT of six
// inputs. A number behind the last word selects zeros. The tree remains one only if the same module does not decode the
// number: where each word has a bit that selects it, yosys chooses by those, in up to twice as many LUTs.
module selector #(
  parameter int unsigned Inputs = 8,  // at least two
  parameter int unsigned Width  = 64,
  localparam int unsigned IndexWidth = $clog2(Inputs)
) (
  input  logic [IndexWidth-1:0]        index_i,
  input  logic [Inputs-1:0][Width-1:0] data_i,
  output logic [Width-1:0]             data_o
);

  localparam int unsigned Leaves = 2 ** IndexWidth;

  // Node n chooses between nodes 2n and 2n + 1; the words are nodes Leaves and on, the root is node 1. Each is a signal of
  // its own: in one vector they would look like a loop to a simulator.
  for (genvar n = 1; n < 2 * Leaves; n++) begin : gen_node
    logic [Width-1:0] word;

    if (n >= Leaves) begin : gen_leaf
      assign word = n - Leaves < Inputs ? data_i[(n-Leaves)%Inputs] : '0;
    end else begin : gen_choice
      localparam int unsigned Bit = IndexWidth - $clog2(n + 1);
      assign word = index_i[Bit] ? gen_node[2*n+1].word : gen_node[2*n].word;
    end
  end

  assign data_o = gen_node[1].word;

endmodule
