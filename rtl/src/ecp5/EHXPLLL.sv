// The PLL of an ECP5, with the parameters and pins that are used here. It is not simulated: tests make the clocks.
(* blackbox *)
module EHXPLLL #(
  parameter int    CLKI_DIV     = 1,
  parameter int    CLKFB_DIV    = 1,
  parameter string FEEDBK_PATH  = "CLKOP",
  parameter string CLKOP_ENABLE = "ENABLED",
  parameter int    CLKOP_DIV    = 8,
  parameter int    CLKOP_CPHASE = 0,
  parameter string CLKOS_ENABLE = "DISABLED",
  parameter int    CLKOS_DIV    = 8,
  parameter int    CLKOS_CPHASE = 0
) (
  input  logic CLKI,
  input  logic CLKFB,
  input  logic RST,
  input  logic STDBY,
  input  logic ENCLKOP,
  input  logic ENCLKOS,
  output logic CLKOP,
  output logic CLKOS,
  output logic LOCK
);

endmodule
