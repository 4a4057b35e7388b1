// The register map. `netfold rtl registers` writes it from rtl/registers.toml.
package nic_registers_pkg;

  localparam logic [31:0] Version = 32'h00010000;
  localparam int unsigned Counters = 18;
  localparam logic [11:0] FirstCounter = 12'h080;

  localparam logic [11:0] OffsetId = 12'h000;
  localparam logic [11:0] OffsetVersion = 12'h004;
  localparam logic [11:0] OffsetShape = 12'h008;
  localparam logic [11:0] OffsetControl = 12'h00c;
  localparam logic [11:0] OffsetStatus = 12'h010;
  localparam logic [11:0] OffsetRing = 12'h014;
  localparam logic [11:0] OffsetIdentity = 12'h018;
  localparam logic [11:0] OffsetRequestTimeout = 12'h01c;
  localparam logic [11:0] OffsetLinkTimeout = 12'h020;
  localparam logic [11:0] OffsetOwnAddressLow = 12'h024;
  localparam logic [11:0] OffsetOwnAddressHigh = 12'h028;
  localparam logic [11:0] OffsetRightAddressLow = 12'h02c;
  localparam logic [11:0] OffsetRightAddressHigh = 12'h030;
  localparam logic [11:0] OffsetLeftAddressLow = 12'h034;
  localparam logic [11:0] OffsetLeftAddressHigh = 12'h038;
  localparam logic [11:0] OffsetRequestSourceLow = 12'h040;
  localparam logic [11:0] OffsetRequestSourceHigh = 12'h044;
  localparam logic [11:0] OffsetRequestDestinationLow = 12'h048;
  localparam logic [11:0] OffsetRequestDestinationHigh = 12'h04c;
  localparam logic [11:0] OffsetRequestCount = 12'h050;
  localparam logic [11:0] OffsetRequestPost = 12'h054;
  localparam logic [11:0] OffsetRequestRoom = 12'h058;
  localparam logic [11:0] OffsetCompletion = 12'h060;

  localparam logic [31:0] ResetId = 32'h4e464c44;
  localparam logic [31:0] ResetRequestTimeout = 32'h00010000;
  localparam logic [31:0] ResetLinkTimeout = 32'h00004000;

  // The number of each counter.
  localparam int unsigned CountFramesSent = 0;
  localparam int unsigned CountFramesResent = 1;
  localparam int unsigned CountFramesReceived = 2;
  localparam int unsigned CountAcksSent = 3;
  localparam int unsigned CountAcksReceived = 4;
  localparam int unsigned CountLinkTimeouts = 5;
  localparam int unsigned CountCyclesPaused = 6;
  localparam int unsigned CountDropsForeign = 7;
  localparam int unsigned CountDropsLength = 8;
  localparam int unsigned CountDropsCrc = 9;
  localparam int unsigned CountDropsGap = 10;
  localparam int unsigned CountDropsDuplicate = 11;
  localparam int unsigned CountDropsFull = 12;
  localparam int unsigned CountBeatsMalformed = 13;
  localparam int unsigned CountBeatsFolded = 14;
  localparam int unsigned CountRequestsDone = 15;
  localparam int unsigned CountRequestsFailed = 16;
  localparam int unsigned CountCyclesBusy = 17;

endpackage
