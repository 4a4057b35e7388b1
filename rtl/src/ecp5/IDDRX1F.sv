// The input of an ECP5's pin at both edges: a rising edge shows what came at the rising edge before and at the falling
// edge between.
(* blackbox *)
module IDDRX1F (
  input  logic D,
  input  logic SCLK,
  input  logic RST,
  output logic Q0,
  output logic Q1
);

`ifndef SYNTHESIS
  logic rising_q, falling_q;

  always_ff @(negedge SCLK) falling_q <= D;

  always_ff @(posedge SCLK) begin
    rising_q <= D;
    Q0       <= rising_q && !RST;
    Q1       <= falling_q && !RST;
  end
`endif

endmodule
