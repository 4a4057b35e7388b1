// Whether a frame's gradients, taken for blocks of 16 elements with mantissas of 7 bits, hold an exponent that no
// encoder writes: 1 to 6. A block is its exponent and 16 bytes; bytes behind the last whole block are not a block. It
// looks at every frame, and whoever knows the format asks.
module bfp_scan
  import switch_pkg::*;
(
  input  logic        clk_i,
  input  logic        rst_ni,

  input  logic        valid_i,
  input  logic        last_i,
  input  logic [7:0]  index_i,          // of the beat, in a frame without tag
  input  logic [63:0] data_i,
  input  logic [7:0]  opcode_i,         // from beat 7 on
  input  logic [10:0] payload_bytes_i,  // from beat 8 on, an aggregation header included

  output logic        is_malformed_o    // in the cycle after the last beat
);

  localparam logic [10:0] BlockBytes = 11'd17, HeaderBytes = 11'd20;
  localparam logic [7:0]  Smallest   = 8'd7;

  logic        is_on_q, begins_q, is_on;  // the first block begins in this beat
  logic [4:0]  next_q, next;  // exponent: bytes from this beat's first
  logic [10:0] left_q, left;  // bytes from there on
  logic [10:0] own_bytes_q;   // without an aggregation header; known long before beat 12
  logic [7:0]  exponent;

  always_comb begin
    unique case (opcode_i)
      WriteFirst: begin
        next   = 5'd6;
        left   = own_bytes_q;
      end
      WriteLastImmediate: begin
        next   = 5'd6;
        left   = payload_bytes_i;
      end
      default: begin
        next   = 5'd2;
        left   = payload_bytes_i;
      end
    endcase
    if (!begins_q) begin
      next = next_q;
      left = left_q;
    end
    is_on    = (begins_q || is_on_q) && left >= BlockBytes;
    exponent = data_i[{next[2:0], 3'b000} +: 8];
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      is_on_q        <= 1'b0;
      begins_q       <= 1'b0;
      is_malformed_o <= 1'b0;
    end else if (valid_i) begin
      is_on_q  <= is_on && !last_i;
      begins_q <= !last_i && index_i == (opcode_i == WriteFirst ? 8'd11 : 8'd7);
      if (index_i == 8'd0) is_malformed_o <= 1'b0;
      if (is_on && next < 5'd8 && exponent != '0 && exponent < Smallest) is_malformed_o <= 1'b1;
    end
  end

  always_ff @(posedge clk_i) begin
    if (valid_i) begin
      next_q <= next < 5'd8 ? next + 5'd9 : next - 5'd8;
      left_q <= next < 5'd8 ? left - BlockBytes : left;
    end
    own_bytes_q <= payload_bytes_i - HeaderBytes;
  end

endmodule
