// The constants that users of the FP32 adder need.
package fp32_pkg;

  localparam int unsigned AdderStages = 9;  // cycles from operands to their sum

endpackage
