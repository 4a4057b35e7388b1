// The bursts of a chunk of host memory, one after the other: full ones, and the rest. The length of the next burst, and
// whether it is the last, are in registers: the reader and the writer decide by them in one cycle.
module chunk_bursts #(
  parameter int unsigned Lanes      = 8,
  parameter int unsigned BurstBeats = 16,  // a power of two
  localparam int unsigned BurstWidth = $clog2(BurstBeats + 1)
) (
  input  logic                  clk_i,

  input  logic                  load_i,      // another chunk
  input  logic [63:0]           address_i,
  input  logic [15:0]           elements_i,
  input  logic                  next_i,      // the burst is taken

  // The next burst.
  output logic [63:0]           address_o,
  output logic [15:0]           elements_o,
  output logic [BurstWidth-1:0] beats_o,
  output logic                  is_last_o,   // of the chunk
  output logic                  is_none_o    // the chunk has no more
);

  localparam int unsigned LaneBits      = $clog2(Lanes);
  localparam logic [15:0] BurstElements = 16'(BurstBeats * Lanes);

  logic [63:0]           address_q;
  logic [15:0]           left_q, left;  // elements; left: those from which the next burst is cut
  logic [BurstWidth-1:0] beats_q;
  logic                  is_last_q, is_none_q, is_last;

  assign left    = load_i ? elements_i : left_q;
  assign is_last = load_i ? elements_i <= BurstElements : left_q <= {BurstElements[14:0], 1'b0};

  always_ff @(posedge clk_i) begin
    if (load_i || next_i) begin
      address_q <= load_i ? address_i : address_q + 64'(4 * BurstBeats * Lanes);
      left_q    <= load_i ? elements_i : left_q - BurstElements;
      is_last_q <= is_last;
      is_none_q <= load_i ? elements_i == '0 : is_last_q;
      // The last burst is what a division by full ones leaves: one more of them does not count.
      beats_q   <= is_last ? BurstWidth'((BurstWidth-1)'((left - 16'd1) >> LaneBits)) + 1'b1
                           : BurstWidth'(BurstBeats);
    end
  end

  assign address_o  = address_q;
  assign elements_o = is_last_q ? left_q : BurstElements;
  assign beats_o    = beats_q;
  assign is_last_o  = is_last_q;
  assign is_none_o  = is_none_q;

endmodule
