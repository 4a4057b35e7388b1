// The types that the parts of the ring all-reduce exchange.
package nic_pkg;

  // How a request ended.
  typedef enum logic [2:0] {
    StatusDone     = 3'd0,
    StatusTimeout  = 3'd1,  // nothing moved for the time set
    StatusMismatch = 3'd2,  // the left neighbour sends another count or format
    StatusReset    = 3'd3,  // by a soft reset
    StatusRefused  = 3'd4   // the device has failed before, is not enabled, or its ring is not set
  } status_e;

  typedef struct packed {
    logic [63:0] source;       // host addresses, in bytes, multiples of four
    logic [63:0] destination;
    logic [31:0] count;        // elements
  } span_t;

  typedef struct packed {
    span_t       span;
    logic [15:0] tag;          // the driver's, given back with the status
  } request_t;

  typedef struct packed {
    status_e     status;
    logic [15:0] tag;
  } completion_t;

  // A chunk of host memory. Beats beyond the elements are padding: read as zeros, never written.
  typedef struct packed {
    logic [63:0] address;
    logic [15:0] elements;
    logic [15:0] beats;
    logic        flag;      // read: these are added to what arrives, else sent as they are; write: a request ends here
  } chunk_t;

  // The action on a chunk that arrives.
  typedef struct packed {
    logic [15:0] beats;     // of numbers
    logic        forwards;  // as it is, to the right neighbour
  } arrival_t;

  // The actions of one step on one chunk. Of the 2N - 1 steps of N places, the first only sends, the next N - 2 fold,
  // then the sum is complete, N - 2 pass on sums, and the last only stores.
  typedef enum logic [2:0] {
    StepSend,    // own numbers go to the right
    StepFold,    // what arrives plus own numbers go to the right
    StepFinish,  // the same, and what goes is the sum: it is written as well
    StepGather,  // what arrives goes on as it is, and is written
    StepLast,    // what arrives is written
    StepEnd      // no chunk: the request ends here
  } step_e;

  typedef struct packed {
    step_e       step;
    logic [63:0] source;
    logic [63:0] destination;
    logic [15:0] elements;     // without padding
    logic [15:0] beats;        // with it
  } operation_t;

  typedef struct packed {
    logic [5:0]  position;
    logic [5:0]  size;      // of the ring, 2 to 32
    logic        bfp;       // chunks travel as block floating point
  } ring_t;

endpackage
