/* SPDX-License-Identifier: Apache-2.0 */
/* The slots of one arena, and two replicas that read each batch: SlotTable in
   server/delivery/slots.h, and the releases, hang-ups, detaches, evictions and deaths that DataServer
   in server/delivery/data_server.h reports. At every step each consumer may do any of these, or
   repeat a release. README.md has the map. */

#define SLOTS 2
#define READERS 2
#define LOANS 4 /* enough for a slot to be used again while the other one is being read */
#define AT(slot, reader) ((slot) * READERS + (reader))

mtype = { RELEASE, DETACH };

/* SlotTable */
bool loaned[SLOTS];
byte expected[SLOTS];
bool holds[SLOTS * READERS];
bool retired[SLOTS * READERS];
byte epoch[SLOTS];

/* The session layer: who has yet to acquire a slot, who is still to be given batches. */
bool waits[SLOTS * READERS];
bool member[READERS];

/* DataServer */
bool open[READERS];
bool detached_seen[READERS];
bool exited[READERS];
chan to_daemon[READERS] = [1] of { mtype, byte, byte };

/* The consumers' side of the truth. */
bool alive[READERS];
bool linked[READERS];
bool detached[READERS];
bool may_read[SLOTS * READERS];
byte lease_epoch[SLOTS * READERS];
bool repeated; /* by reader 0, which stands for both */
bool evicted;

#define HELD(s) (holds[AT(s, 0)] || holds[AT(s, 1)])
#define RETIRED(s) (retired[AT(s, 0)] || retired[AT(s, 1)])
#define FREE(s) (!loaned[s] && expected[s] == 0 && !HELD(s) && !RETIRED(s))
#define READ(s) (may_read[AT(s, 0)] || may_read[AT(s, 1)])

/* No further batch for c: what it has not acquired is forgone. */
inline leave(c, s) {
  if
  :: member[c] ->
    member[c] = false;
    for (s : 0 .. SLOTS - 1) {
      if
      :: waits[AT(s, c)] ->
        waits[AT(s, c)] = false;
#ifndef BUG_NO_FORGO
        expected[s]--
#endif
      :: else
      fi
    }
  :: else
  fi
}

inline reclaim(c, s) {
  for (s : 0 .. SLOTS - 1) {
    holds[AT(s, c)] = false;
    retired[AT(s, c)] = false
  }
}

inline retire(c, s) {
#ifdef BUG_REUSE_LEASED
  reclaim(c, s)
#else
  for (s : 0 .. SLOTS - 1) {
    if
    :: holds[AT(s, c)] ->
      holds[AT(s, c)] = false;
      retired[AT(s, c)] = true
    :: else
    fi
  }
#endif
}

proctype Consumer(byte c) {
  byte s;
  do
  :: atomic { linked[c] && nfull(to_daemon[c]) && (may_read[AT(0, c)] || may_read[AT(1, c)]) ->
      if
      :: may_read[AT(0, c)] -> s = 0
      :: may_read[AT(1, c)] -> s = 1
      fi;
      may_read[AT(s, c)] = false;
      to_daemon[c]!RELEASE, s, lease_epoch[AT(s, c)];
      if
      :: c == 1 || s == 1 || repeated -> lease_epoch[AT(s, c)] = 0 /* it is of no more use */
      :: else
      fi;
      s = 0 }
  /* The same lease once more, perhaps when the slot has another batch. */
  :: atomic { c == 0 && linked[0] && nfull(to_daemon[0]) && !repeated && !may_read[AT(0, 0)] &&
      lease_epoch[AT(0, 0)] > 0 ->
      repeated = true;
      to_daemon[0]!RELEASE, 0, lease_epoch[AT(0, 0)];
      lease_epoch[AT(0, 0)] = 0 }
  :: atomic { linked[c] && !detached[c] && nfull(to_daemon[c]) ->
      detached[c] = true;
      to_daemon[c]!DETACH, 0, 0 }
  /* libspdld hangs up after its last lease; another client whenever it likes, and reads on. */
  :: atomic { linked[c] && detached[c] && !may_read[AT(0, c)] && !may_read[AT(1, c)] ->
      linked[c] = false }
  :: atomic { linked[c] && !detached[c] -> linked[c] = false }
  :: atomic { alive[c] ->
      alive[c] = false;
      linked[c] = false;
      detached[c] = false;
      for (s : 0 .. SLOTS - 1) {
        may_read[AT(s, c)] = false;
        lease_epoch[AT(s, c)] = 0
      };
      s = 0;
      break }
  od
}

proctype Daemon() {
  byte c, s, e, loans;
  do
  :: atomic { loans < LOANS && (FREE(0) || FREE(1)) ->
      if
      :: FREE(0) -> s = 0
      :: else -> s = 1
      fi;
      /* What this model is about. */
      assert(!READ(s));
      loaned[s] = true;
      epoch[s]++;
      loans++;
      s = 0 }
  :: atomic { loaned[0] || loaned[1] ->
      if
      :: loaned[0] -> s = 0
      :: loaned[1] -> s = 1
      fi;
      loaned[s] = false;
      if
      :: for (c : 0 .. READERS - 1) {
          if
          :: member[c] -> waits[AT(s, c)] = true; expected[s]++
          :: else
          fi
        }
      :: skip /* aborted */
      fi;
      s = 0; c = 0 }
  :: atomic { waits[AT(0, 0)] || waits[AT(0, 1)] || waits[AT(1, 0)] || waits[AT(1, 1)] ->
      if
      :: waits[AT(0, 0)] -> s = 0; c = 0
      :: waits[AT(0, 1)] -> s = 0; c = 1
      :: waits[AT(1, 0)] -> s = 1; c = 0
      :: waits[AT(1, 1)] -> s = 1; c = 1
      fi;
      assert(expected[s] > 0 && !holds[AT(s, c)] && !loaned[s]);
      waits[AT(s, c)] = false;
      expected[s]--;
      holds[AT(s, c)] = true;
      if
      :: linked[c] && !detached[c] ->
        may_read[AT(s, c)] = true;
        lease_epoch[AT(s, c)] = epoch[s]
      :: else /* it does not look at what comes now */
      fi;
      s = 0; c = 0 }
  :: atomic { open[0] && nempty(to_daemon[0]) || open[1] && nempty(to_daemon[1]) ->
      if
      :: open[0] && nempty(to_daemon[0]) -> c = 0
      :: open[1] && nempty(to_daemon[1]) -> c = 1
      fi;
      if
      :: to_daemon[c]?RELEASE, s, e ->
        if
#ifdef BUG_ANY_EPOCH
        :: holds[AT(s, c)] ->
#else
        :: holds[AT(s, c)] && epoch[s] == e ->
#endif
          holds[AT(s, c)] = false
#ifdef BUG_FIRST_RELEASE_FREES
          ;
          holds[AT(s, 1 - c)] = false
#endif
        :: else /* counted, and nothing else */
        fi
      :: to_daemon[c]?DETACH, s, e -> detached_seen[c] = true; leave(c, s)
      fi;
      s = 0; c = 0; e = 0 }
  /* End of file comes behind the last frame. */
  :: atomic { open[0] && !linked[0] && empty(to_daemon[0]) ||
              open[1] && !linked[1] && empty(to_daemon[1]) ->
      if
      :: open[0] && !linked[0] && empty(to_daemon[0]) -> c = 0
      :: open[1] && !linked[1] && empty(to_daemon[1]) -> c = 1
      fi;
      open[c] = false;
      leave(c, s);
      if
#ifdef BUG_HANG_UP_IS_A_WORD
      :: detached_seen[c] || c == 0 && evicted -> reclaim(c, s)
#else
      :: detached_seen[c] -> reclaim(c, s)
#endif
      :: else -> retire(c, s)
      fi;
      s = 0; c = 0 }
  /* We end it: it may read what it has until it exits, or says by Detach and end of file that it
     does not; but for one that sent garbage, whose words count for nothing. */
  :: atomic { !evicted && open[0] ->
      evicted = true;
      leave(0, s);
      retire(0, s);
      if
      :: open[0] = false
      :: skip
      fi;
      s = 0 }
  :: atomic { !alive[0] && !exited[0] || !alive[1] && !exited[1] ->
      if
      :: !alive[0] && !exited[0] -> c = 0
      :: !alive[1] && !exited[1] -> c = 1
      fi;
      exited[c] = true;
      open[c] = false;
      leave(c, s);
      reclaim(c, s);
      s = 0; c = 0 }
  :: atomic { exited[0] && exited[1] && !loaned[0] && !loaned[1] && loans == LOANS -> break }
  od;
  /* Everybody is gone: nothing may be missing. */
  assert(FREE(0) && FREE(1))
}

init {
  byte c;
  atomic {
    for (c : 0 .. READERS - 1) {
      member[c] = true;
      open[c] = true;
      alive[c] = true;
      linked[c] = true;
      run Consumer(c)
    }
    run Daemon()
  }
}
