// The pins of a PHY towards the FPGA (RGMII 2.0, 1000 Mbit/s): four bits at each edge of its clock become a byte a
// cycle. The PHY delays its clock by 2 ns against the data (RGMII-ID), so edges are in the middle of the bits. Where
// a board needs more, `DelayTaps` delays the data, by some 25 ps each.
module rgmii_receive #(
  parameter int DelayTaps = 0  // 0 to 127
) (
  input  logic       rx_clk_i,
  input  logic       rx_ctl_i,
  input  logic [3:0] rx_data_i,

  output logic       valid_o,
  output logic       error_o,
  output logic [7:0] data_o
);

  logic [4:0] pins, delayed, rising, falling;

  assign pins = {rx_ctl_i, rx_data_i};

  for (genvar i = 0; i < 5; i++) begin : gen_pin
    DELAYG #(.DEL_MODE("USER_DEFINED"), .DEL_VALUE(DelayTaps)) u_delay (.A(pins[i]), .Z(delayed[i]));
    IDDRX1F u_pin (.D(delayed[i]), .SCLK(rx_clk_i), .RST(1'b0), .Q0(rising[i]), .Q1(falling[i]));
  end

  assign valid_o = rising[4];
  assign error_o = rising[4] ^ falling[4];
  assign data_o  = {falling[3:0], rising[3:0]};

endmodule
