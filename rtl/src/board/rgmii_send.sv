// The pins of the FPGA towards a PHY (RGMII 2.0, 1000 Mbit/s): a byte a cycle becomes four bits at each edge of the clock
// that goes with them. Clock and data leave together, and the PHY delays the clock by 2 ns (RGMII-ID).
module rgmii_send (
  input  logic       clk_i,  // 125 MHz
  input  logic       valid_i,
  input  logic [7:0] data_i,

  output logic       tx_clk_o,
  output logic       tx_ctl_o,
  output logic [3:0] tx_data_o
);

  logic [5:0] rising, falling;

  assign rising  = {1'b1, valid_i, data_i[3:0]};
  assign falling = {1'b0, valid_i, data_i[7:4]};  // the control line would differ for an error, which is never sent

  for (genvar i = 0; i < 6; i++) begin : gen_pin
    logic pin;
    ODDRX1F u_pin (.D0(rising[i]), .D1(falling[i]), .SCLK(clk_i), .RST(1'b0), .Q(pin));
    if (i < 4) begin : gen_data
      assign tx_data_o[i] = pin;
    end else if (i == 4) begin : gen_control
      assign tx_ctl_o = pin;
    end else begin : gen_clock
      assign tx_clk_o = pin;
    end
  end

endmodule
