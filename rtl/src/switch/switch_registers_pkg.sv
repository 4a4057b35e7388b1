// The register map. `netfold rtl registers` writes it from rtl/switch_registers.toml.
package switch_registers_pkg;

  localparam logic [31:0] Version = 32'h00010000;
  localparam int unsigned Counters = 37;
  localparam logic [12:0] FirstCounter = 13'h1000;

  localparam logic [12:0] OffsetId = 13'h000;
  localparam logic [12:0] OffsetVersion = 13'h004;
  localparam logic [12:0] OffsetShape = 13'h008;
  localparam logic [12:0] OffsetControl = 13'h00c;
  localparam logic [12:0] OffsetStatus = 13'h010;
  localparam logic [12:0] OffsetAggMode = 13'h014;
  localparam logic [12:0] OffsetAggPortCfg = 13'h018;
  localparam logic [12:0] OffsetAgeLimit = 13'h01c;
  localparam logic [12:0] OffsetAddressAgeLimit = 13'h020;
  localparam logic [12:0] OffsetPause = 13'h024;
  localparam logic [12:0] OffsetCounterHigh = 13'h028;
  localparam logic [12:0] OffsetAged = 13'h02c;
  localparam logic [12:0] OffsetException0Job = 13'h040;
  localparam logic [12:0] OffsetException1Job = 13'h048;
  localparam logic [12:0] OffsetException2Job = 13'h050;
  localparam logic [12:0] OffsetException3Job = 13'h058;
  localparam logic [12:0] OffsetException0Ports = 13'h044;
  localparam logic [12:0] OffsetException1Ports = 13'h04c;
  localparam logic [12:0] OffsetException2Ports = 13'h054;
  localparam logic [12:0] OffsetException3Ports = 13'h05c;

  localparam logic [31:0] ResetId = 32'h4e464c53;
  localparam logic [31:0] ResetAgeLimit = 32'h001dcd65;
  localparam logic [31:0] ResetAddressAgeLimit = 32'h000000e0;

  // The number of each counter.
  localparam int unsigned CountRoceForwarded = 0;
  localparam int unsigned CountRoceKept = 1;
  localparam int unsigned CountRoceFolded = 2;
  localparam int unsigned CountRoceAnswered = 3;
  localparam int unsigned CountRoceWaiting = 4;
  localparam int unsigned CountDropMalformed = 5;
  localparam int unsigned CountDropIcrc = 6;
  localparam int unsigned CountDropHeader = 7;
  localparam int unsigned CountDropEpoch = 8;
  localparam int unsigned CountDropRank = 9;
  localparam int unsigned CountDropSpoofed = 10;
  localparam int unsigned CountDropOrder = 11;
  localparam int unsigned CountDropMismatch = 12;
  localparam int unsigned CountDropPsn = 13;
  localparam int unsigned CountDropShape = 14;
  localparam int unsigned CountDropBlock = 15;
  localparam int unsigned CountDropBusy = 16;
  localparam int unsigned CountDropStale = 17;
  localparam int unsigned CountDropJobs = 18;
  localparam int unsigned CountDropRoom = 19;
  localparam int unsigned CountFramesIn = 20;
  localparam int unsigned CountBytesIn = 21;
  localparam int unsigned CountForwarded = 22;
  localparam int unsigned CountFlooded = 23;
  localparam int unsigned CountFiltered = 24;
  localparam int unsigned CountDropRunt = 25;
  localparam int unsigned CountDropBadSource = 26;
  localparam int unsigned CountDropTooManyTags = 27;
  localparam int unsigned CountOversize = 28;
  localparam int unsigned CountDamaged = 29;
  localparam int unsigned CountDropQueueFull = 30;
  localparam int unsigned CountDropSum = 31;
  localparam int unsigned CountFramesOut = 32;
  localparam int unsigned CountBytesOut = 33;
  localparam int unsigned CountSumsOut = 34;
  localparam int unsigned CountNoticesOut = 35;
  localparam int unsigned CountPausesOut = 36;

endpackage
