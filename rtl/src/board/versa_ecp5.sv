// The top of the bitstream for Lattice's ECP5 Versa board: LFE5UM5G-45F, two Marvell 88E1512 PHYs, 100 MHz. Here are the
// clocks and resets; gigabit_switch is the rest. `netfold rtl board` builds it, with the pins of rtl/boards/versa_ecp5.toml.
module versa_ecp5 #(
  parameter int unsigned StartBits = 21  // the PHYs need 10 ms of reset behind their clock: 42 ms at 50 MHz
) (
  input  logic            clk100_i,
  input  logic            rst_ni,         // the board's button

  input  logic [1:0]      eth_rx_clk_i,
  input  logic [1:0]      eth_rx_ctl_i,
  input  logic [1:0][3:0] eth_rx_data_i,
  output logic [1:0]      eth_tx_clk_o,
  output logic [1:0]      eth_tx_ctl_o,
  output logic [1:0][3:0] eth_tx_data_o,
  output logic [1:0]      eth_rst_no,

  input  logic            is_float_i,     // a DIP switch
  input  logic            spi_sclk_i,
  input  logic            spi_cs_ni,
  input  logic            spi_mosi_i,
  output logic            spi_miso_o,
  output logic [7:0]      led_no
);

  // 100 MHz x 5 / 4 = 125 MHz for the PHYs; the PLL runs at four times that, and a tenth of it is the switch's 50 MHz.
  logic clk125, clk50, locked;

  // The attributes are the loop's, as ecppll of Project Trellis writes them.
  (* ICP_CURRENT = "12", LPF_RESISTOR = "8", MFG_ENABLE_FILTEROPAMP = "1", MFG_GMCREF_SEL = "2" *)
  EHXPLLL #(
    .CLKI_DIV     (4),
    .CLKFB_DIV    (5),
    .FEEDBK_PATH  ("CLKOP"),
    .CLKOP_ENABLE ("ENABLED"),
    .CLKOP_DIV    (4),
    .CLKOP_CPHASE (3),
    .CLKOS_ENABLE ("ENABLED"),
    .CLKOS_DIV    (10),
    .CLKOS_CPHASE (9)
  ) u_pll (
    .CLKI   (clk100_i),
    .CLKFB  (clk125),
    .RST    (1'b0),
    .STDBY  (1'b0),
    .ENCLKOP(1'b0),
    .ENCLKOS(1'b0),
    .CLKOP  (clk125),
    .CLKOS  (clk50),
    .LOCK   (locked)
  );

  logic                 pll_rst_n, switch_rst_n;
  logic [StartBits-1:0] start_q;
  logic                 is_started_q;

  reset_sync u_pll_reset (.clk_i(clk50), .rst_ni(locked && rst_ni), .rst_no(pll_rst_n));

  always_ff @(posedge clk50 or negedge pll_rst_n) begin
    if (!pll_rst_n) begin
      start_q      <= '0;
      is_started_q <= 1'b0;
    end else begin
      start_q      <= start_q + StartBits'(!is_started_q);
      is_started_q <= &start_q || is_started_q;
    end
  end

  assign eth_rst_no = {2{is_started_q}};

  reset_sync u_switch_reset (.clk_i(clk50), .rst_ni(is_started_q), .rst_no(switch_rst_n));

  gigabit_switch u_switch (
    .clk_i         (clk50),
    .rst_ni        (switch_rst_n),
    .tx_clk_i      (clk125),
    .rx_clk_i      (eth_rx_clk_i),
    .rx_ctl_i      (eth_rx_ctl_i),
    .rx_data_i     (eth_rx_data_i),
    .tx_clk_o      (eth_tx_clk_o),
    .tx_ctl_o      (eth_tx_ctl_o),
    .tx_data_o     (eth_tx_data_o),
    .is_float_i,
    .spi_sclk_i,
    .spi_cs_ni,
    .spi_mosi_i,
    .spi_miso_o,
    .led_in_no     ({led_no[4], led_no[0]}),
    .led_damaged_no({led_no[5], led_no[1]}),
    .led_out_no    ({led_no[6], led_no[2]})
  );

  assign led_no[3] = !is_started_q;
  assign led_no[7] = !is_float_i;

endmodule
