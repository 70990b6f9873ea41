/* SPDX-License-Identifier: Apache-2.0 */
/* One shard's batches on their way to one rank: Stream in server/stream, Consumer in server/session,
   the order of the data socket, and the client's reconnect (client/cpp/src/link.h). Two workers
   finish batches in any order; daemon and rank are killed at any step and started again, and with
   -DSEEK the rank seeks at any step. README.md has the map. */

#define BATCHES 6
#define CREDITS 2
#define SLOTS 4 /* credits, and two being filled */
#define WORKERS 2
#define NONE 255

#ifdef BUG_SEND_OUT_OF_TURN
#define ITS_TURN (d.ready[0] || d.ready[1] || d.ready[2] || d.ready[3])
#else
#define ITS_TURN d.ready[d.to_send]
#endif

#ifdef BUG_NO_CREDIT
#define HAS_CREDIT true
#else
#define HAS_CREDIT (d.leases < CREDITS)
#endif

#ifdef BUG_KEEP_OLD_SERIAL
#define WANTED(its_serial) true
#else
#define WANTED(its_serial) ((its_serial) == serial)
#endif

mtype = { BATCH, RESET };

/* Daemon. What is lost when it dies stands in `d`, so that a death can clear it at once. */
typedef Feed {
  byte to_make;
  byte to_send;
  byte leases;
  byte free;              /* slots */
  byte making[WORKERS];   /* a batch, or NONE */
  bool stale[WORKERS];    /* begun before the last seek */
  bool ready[BATCHES];
  byte serial
};
Feed d;
bool serving;

/* The socket of the present connection. */
chan to_rank = [CREDITS + 1] of { mtype, byte, byte }; /* kind, batch or position, serial */
chan to_daemon = [CREDITS] of { byte };                /* releases */
chan seeks = [1] of { byte, byte };                    /* position, serial */
bool connected; /* as the rank sees it: end of file comes behind what is in the socket */

/* The rank. */
byte cursor;       /* behind the last batch handed to the caller: what it saves, too */
byte held;         /* batches that the caller has, of this connection */
byte serial;
bool awaits_reset;
byte seek_to;

/* The truth. */
byte expected;     /* the next batch that the caller must be handed */
byte daemon_deaths, rank_deaths;
bool sought;
byte sent;         /* what a daemon might take for the rank's position, and must not */

inline clear_feed(w) {
  d.to_make = 0; d.to_send = 0; d.leases = 0; d.free = 0; d.serial = 0;
  for (w : 0 .. WORKERS - 1) { d.making[w] = NONE; d.stale[w] = false };
  for (w : 0 .. BATCHES - 1) { d.ready[w] = false };
  w = 0
}

/* The socket and its leases are gone. */
inline clear_connection() {
  do
  :: nempty(to_rank) -> to_rank?_, _, _
  :: empty(to_rank) -> break
  od;
  do
  :: nempty(to_daemon) -> to_daemon?_
  :: empty(to_daemon) -> break
  od;
  do
  :: nempty(seeks) -> seeks?_, _
  :: empty(seeks) -> break
  od;
  connected = false;
  held = 0;
  serial = 0;
  awaits_reset = false
}

inline restart_at(position, w) {
  d.to_make = position;
  d.to_send = position;
  for (w : 0 .. BATCHES - 1) {
    if
    :: d.ready[w] -> d.ready[w] = false; d.free++
    :: else
    fi
  };
  for (w : 0 .. WORKERS - 1) {
#ifndef BUG_KEEP_OLD_TURN
    d.stale[w] = d.making[w] != NONE
#else
    skip
#endif
  };
  w = 0
}

proctype Daemon() {
  byte w, at, s;
  do
  :: atomic { serving && d.to_make < BATCHES && d.free > 0 &&
              (d.making[0] == NONE || d.making[1] == NONE) ->
      if
      :: d.making[0] == NONE -> w = 0
      :: else -> w = 1
      fi;
      d.making[w] = d.to_make;
      d.to_make++;
      d.free--;
      w = 0 }
  :: atomic { serving && (d.making[0] != NONE || d.making[1] != NONE) ->
      if
      :: d.making[0] != NONE -> w = 0
      :: d.making[1] != NONE -> w = 1
      fi;
      if
      :: d.stale[w] -> d.free++
      :: else ->
        assert(!d.ready[d.making[w]]);
        d.ready[d.making[w]] = true
      fi;
      d.making[w] = NONE;
      d.stale[w] = false;
      w = 0 }
  /* pump() */
  :: atomic { serving && d.to_send < BATCHES && nfull(to_rank) && ITS_TURN && HAS_CREDIT ->
      at = d.to_send;
#ifdef BUG_SEND_OUT_OF_TURN
      if
      :: d.ready[0] -> at = 0
      :: d.ready[1] -> at = 1
      :: d.ready[2] -> at = 2
      :: d.ready[3] -> at = 3
      fi;
#endif
      d.ready[at] = false;
      d.leases++;
      d.to_send++;
      sent = d.to_send;
      to_rank!BATCH, at, d.serial;
      at = 0;
      /* held + waiting <= credits, and every slot is somewhere. */
      assert(d.leases <= CREDITS) }
  :: atomic { serving && nempty(to_daemon) ->
      to_daemon?_;
      assert(d.leases > 0);
      d.leases--;
      d.free++ }
  :: atomic { serving && empty(to_daemon) && nempty(seeks) && nfull(to_rank) ->
      seeks?at, s;
      d.serial = s;
      restart_at(at, w);
      to_rank!RESET, at, s;
      at = 0; s = 0 }
  :: atomic { serving && daemon_deaths > 0 ->
      daemon_deaths--;
      serving = false;
      clear_feed(w);
      do /* nobody reads what was sent to it */
      :: nempty(to_daemon) -> to_daemon?_
      :: empty(to_daemon) -> break
      od;
      do
      :: nempty(seeks) -> seeks?_, _
      :: empty(seeks) -> break
      od }
  :: atomic { cursor == BATCHES && held == 0 && empty(to_daemon) && empty(to_rank) &&
              empty(seeks) && !awaits_reset && (sought || seek_to == NONE) &&
              d.making[0] == NONE && d.making[1] == NONE ->
      break }
  od;
  /* All was handed out, and all has come back. */
  assert(expected == BATCHES);
  assert(!serving || !connected || d.leases == 0 && d.free == SLOTS)
}

proctype Rank() {
  byte at, s, w;
  mtype kind;
  do
  /* Attach: a new feed at the cursor. */
  :: atomic { !connected && empty(to_rank) && (cursor < BATCHES || !sought && seek_to != NONE) ->
      connected = true;
      serving = true; /* whoever asks waits until it is there again */
      clear_feed(w);
      d.free = SLOTS;
      d.to_make = cursor;
      d.to_send = cursor;
#ifdef BUG_RESUME_AT_SENT
      d.to_make = sent;
      d.to_send = sent
#endif
      }
  /* End of file: only when nothing is left to read. What is held lives on without a lease. */
  :: atomic { connected && !serving && empty(to_rank) ->
      clear_connection();
      assert(cursor == expected) }
  :: atomic { connected && nempty(to_rank) && held < CREDITS ->
      to_rank?kind, at, s;
      if
      :: kind == RESET && s == serial ->
        awaits_reset = false;
        cursor = at;
        assert(at == expected)
      :: kind == RESET && s != serial -> assert(false)
      :: kind == BATCH && WANTED(s) ->
        assert(at == expected);
        expected = at + 1;
        cursor = at + 1;
        held++
      :: kind == BATCH && !WANTED(s) -> /* released unseen */
        if
        :: serving -> assert(nfull(to_daemon)); to_daemon!at
        :: else
        fi
      fi;
      kind = 0; at = 0; s = 0 }
  :: atomic { connected && held > 0 ->
      held--;
      if
      :: serving -> assert(nfull(to_daemon)); to_daemon!0
      :: else
      fi }
  :: atomic { connected && serving && seek_to != NONE && !sought && nfull(seeks) ->
      sought = true;
      serial++;
      awaits_reset = true;
      expected = seek_to;
      cursor = seek_to;
      seeks!seek_to, serial }
  /* Killed, and started again from what it saved: the cursor. The daemon sees it exit. */
  :: atomic { rank_deaths > 0 ->
      rank_deaths--;
      clear_connection();
      clear_feed(w) }
  :: atomic { cursor == BATCHES && held == 0 && empty(to_rank) && !awaits_reset &&
              (sought || seek_to == NONE) -> break }
  od
}

init {
  byte w;
  atomic {
    clear_feed(w);
    daemon_deaths = 2;
    rank_deaths = 1;
    seek_to = NONE;
#ifdef SEEK
    if
    :: seek_to = 0
    :: seek_to = 2
    fi;
#endif
    run Daemon();
    run Rank()
  }
}
