// The registers, behind AXI-Lite and SPI: settings, and a way to the counters of the ports. One access at a time, in four
// cycles. The map is rtl/switch_registers.toml.
module switch_registers
  import switch_pkg::*;
  import switch_registers_pkg::*;
#(
  parameter int unsigned Ports  = 8,
  parameter int unsigned Jobs   = 1,
  parameter bit          HasBfp = 1'b1,
  parameter bit          HasHalf = 1'b0
) (
  input  logic                   clk_i,
  input  logic                   rst_ni,

  input  logic [12:0]            awaddr_i,
  input  logic                   awvalid_i,
  output logic                   awready_o,
  input  logic [31:0]            wdata_i,
  input  logic                   wvalid_i,
  output logic                   wready_o,
  output logic [1:0]             bresp_o,
  output logic                   bvalid_o,
  input  logic                   bready_i,
  input  logic [12:0]            araddr_i,
  input  logic                   arvalid_i,
  output logic                   arready_o,
  output logic [31:0]            rdata_o,
  output logic [1:0]             rresp_o,
  output logic                   rvalid_o,
  input  logic                   rready_i,

  input  logic                   spi_valid_i,
  input  logic                   spi_write_i,
  input  logic [12:0]            spi_address_i,
  input  logic [31:0]            spi_wdata_i,
  output logic                   spi_done_o,

  output config_t                config_o,
  output logic [7:0]             address_age_limit_o,
  output logic [Ports-1:0]       pause_o,
  output logic                   soft_reset_o,  // for some cycles
  input  logic                   learns_i,
  input  logic                   aged_i,

  output logic [Ports-1:0]       count_read_o,
  output logic [5:0]             count_index_o,
  input  logic [Ports-1:0][47:0] count_i        // in the cycle after
);

  localparam logic [1:0]  Okay       = 2'b00;
  localparam logic [1:0]  SlaveError = 2'b10;
  localparam logic [25:0] PortBits   = 26'((64'd1 << Ports) - 64'd1);

  typedef enum logic [1:0] {MasterNone, MasterSpi, MasterWrite, MasterRead} master_e;

  // --- One access at a time: taken, done, answered ---
  master_e     master_q;
  logic [1:0]  step_q;
  logic [12:0] address_q;
  logic [31:0] wdata_q, rdata_q;
  logic [2:0][4:0] weighs, weighs_q;  // by weight of a bit: that bit of each count of six ports
  logic        is_write_q, is_exception_q, refuses, refused_q, bvalid_q, rvalid_q, is_counter, writes;

  assign awready_o  = master_q == MasterWrite && step_q == 2'd3;
  assign wready_o   = awready_o;
  assign arready_o  = master_q == MasterRead && step_q == 2'd3;
  assign bvalid_o   = bvalid_q;
  assign bresp_o    = refused_q ? SlaveError : Okay;
  assign rvalid_o   = rvalid_q;
  assign rdata_o    = rdata_q;
  assign rresp_o    = Okay;
  assign spi_done_o = master_q == MasterSpi && step_q == 2'd3;
  assign writes     = is_write_q && step_q == 2'd2 && !refused_q;
  assign is_counter = address_q[12];

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      master_q <= MasterNone;
      step_q   <= '0;
      bvalid_q <= 1'b0;
      rvalid_q <= 1'b0;
    end else begin
      bvalid_q <= awready_o || (bvalid_q && !bready_i);
      rvalid_q <= arready_o || (rvalid_q && !rready_i);
      step_q   <= master_q == MasterNone ? '0 : step_q + 1'b1;
      if (master_q != MasterNone) begin
        if (step_q == 2'd3) master_q <= MasterNone;
      end else if (spi_valid_i) begin
        master_q <= MasterSpi;
      end else if (awvalid_i && wvalid_i && !bvalid_q) begin
        master_q <= MasterWrite;
      end else if (arvalid_i && !rvalid_q) begin
        master_q <= MasterRead;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (master_q == MasterNone) begin
      is_write_q <= spi_valid_i ? spi_write_i : awvalid_i && wvalid_i && !bvalid_q;
      address_q  <= spi_valid_i ? spi_address_i : awvalid_i && wvalid_i && !bvalid_q ? awaddr_i : araddr_i;
      wdata_q    <= spi_valid_i ? spi_wdata_i : wdata_i;
    end
    // A value is compared in two cycles, and stored in the third.
    weighs_q       <= weighs;
    is_exception_q <= address_q >= OffsetException0Job && address_q <= OffsetException3Ports;
    if (is_write_q && step_q == 2'd1) refused_q <= refuses;
  end

  // --- Settings ---
  config_t     config_q;
  logic [30:0] port_cfg_q;  // AGG_PORT_CFG without the bit that is 0
  logic [7:0]  address_age_limit_q;
  logic [15:0] pause_q;
  logic [3:0]  reset_q;     // cycles that are left of a soft reset
  logic [31:0] aged_q;
  logic [1:0]  exception;
  logic [4:0]  enabled;     // ports in what is written
  logic [2:0]  six;

  function automatic logic [2:0] ones_of(logic [5:0] bits);
    ones_of = '0;
    for (int unsigned i = 0; i < 6; i++) ones_of += 3'(bits[i]);
  endfunction

  assign exception = address_q[4:3];

  always_comb begin
    enabled = '0;
    // Sixes are counted at once, then the bits of equal weight of their counts.
    for (int unsigned i = 0; i < 5; i++) begin
      six = ones_of(6'({4'd0, wdata_q[25:0]} >> (6 * i)));
      for (int unsigned weight = 0; weight < 3; weight++) weighs[weight][i] = six[weight];
    end
    for (int unsigned weight = 0; weight < 3; weight++) enabled += 5'(ones_of({1'b0, weighs_q[weight]})) << weight;
    unique case (address_q)
      OffsetControl, OffsetAgeLimit, OffsetAddressAgeLimit, OffsetPause: refuses = 1'b0;
      OffsetAggMode:    refuses = wdata_q[31:1] != '0;
      OffsetAggPortCfg: refuses = wdata_q[26] || enabled == '0 || enabled != wdata_q[31:27];
      default:          refuses = !is_exception_q;
    endcase
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      config_q            <= '0;
      config_q.age_limit  <= ResetAgeLimit;
      port_cfg_q          <= {5'(Ports), PortBits};
      address_age_limit_q <= 8'(ResetAddressAgeLimit);
      pause_q             <= '0;
      reset_q             <= '0;
      aged_q              <= '0;
    end else begin
      aged_q <= aged_q + 32'(aged_i);
      if (reset_q != '0) reset_q <= reset_q - 1'b1;
      if (writes) begin
        unique case (address_q)
          OffsetControl:         if (wdata_q[0]) reset_q <= '1;
          OffsetAggMode:         config_q.is_float <= wdata_q[0];
          OffsetAggPortCfg:      port_cfg_q <= {wdata_q[31:27], wdata_q[25:0]};
          OffsetAgeLimit:        config_q.age_limit <= wdata_q;
          OffsetAddressAgeLimit: address_age_limit_q <= wdata_q[7:0];
          OffsetPause:           pause_q <= wdata_q[15:0];
          default: begin
            if (address_q[2]) begin
              config_q.exceptions[exception].ports <= wdata_q[15:0] & PortBits[15:0];
            end else begin
              config_q.exceptions[exception].is_used  <= wdata_q[31];
              config_q.exceptions[exception].is_float <= wdata_q[16];
              config_q.exceptions[exception].job      <= wdata_q[15:0];
            end
          end
        endcase
      end
    end
  end

  always_comb begin
    config_o       = config_q;
    config_o.ports = port_cfg_q[15:0] & PortBits[15:0];
  end

  assign address_age_limit_o = address_age_limit_q;
  assign pause_o             = pause_q[Ports-1:0];
  assign soft_reset_o        = reset_q != '0;

  // --- Reading ---
  logic [31:0] settings;
  logic [47:0] counter;
  logic [15:0] counter_high_q;

  assign count_read_o  = is_counter && master_q != MasterNone && step_q == 2'd0 ? Ports'(1) << address_q[11:8] : '0;
  assign count_index_o = address_q[7:2];

  always_comb begin
    counter = '0;
    for (int unsigned i = 0; i < Ports; i++) if (address_q[11:8] == 4'(i)) counter = count_i[i];
    unique case (address_q)
      OffsetId:              settings = ResetId;
      OffsetVersion:         settings = Version;
      OffsetShape:           settings = {14'd0, HasHalf, HasBfp, 8'(Jobs), 8'(Ports)};
      OffsetStatus:          settings = {31'd0, learns_i};
      OffsetAggMode:         settings = {31'd0, config_q.is_float};
      OffsetAggPortCfg:      settings = {port_cfg_q[30:26], 1'b0, port_cfg_q[25:0]};
      OffsetAgeLimit:        settings = config_q.age_limit;
      OffsetAddressAgeLimit: settings = 32'(address_age_limit_q);
      OffsetPause:           settings = 32'(pause_q);
      OffsetCounterHigh:     settings = 32'(counter_high_q);
      OffsetAged:            settings = aged_q;
      default: begin
        settings = '0;
        if (is_exception_q && address_q[2]) begin
          settings = 32'(config_q.exceptions[exception].ports);
        end else if (is_exception_q) begin
          settings = {config_q.exceptions[exception].is_used, 14'd0, config_q.exceptions[exception].is_float,
                      config_q.exceptions[exception].job};
        end
      end
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (!is_write_q && step_q == 2'd1) begin
      rdata_q <= !is_counter ? settings : address_q[7:2] < 6'(Counters) ? counter[31:0] : '0;
      if (is_counter) counter_high_q <= counter[47:32];
    end
  end

endmodule
