/* SPDX-License-Identifier: Apache-2.0 */
/* Two replicas of one shard (Stream in server/stream/stream.h): each batch is made once, and both
   replicas acquire its slot. A replica that dies gives back the slots that it had. With -DWAIT the
   batches that it has not acquired are kept for it, and the stream stands still when no slot is
   left; without -DWAIT they are dropped and the other replica goes on. For a replica that returns, a
   stream of its own makes the missing batches again before it joins. Replicas and daemon are killed
   at any step. slots.pml models late releases and hang-ups. README.md has the map. */

#define REPLICAS 2
#define BATCHES 4
#define SLOTS 2
#define CREDITS 2
#define NONE 255
#define OWN SLOTS /* in place of a slot: the batch comes from the replica's own stream */
#define AT(slot, replica) ((slot) * REPLICAS + (replica))

/* The daemon: the stream that both share. */
bool serving;
byte to_make = NONE;          /* NONE: nobody has attached yet */
byte batch_in[SLOTS];         /* NONE: free */
bool needs[SLOTS * REPLICAS]; /* has yet to acquire it */
bool holds[SLOTS * REPLICAS];
/* And each replica's part in it. */
bool attached[REPLICAS];
byte join_at[REPLICAS];       /* the first batch that it takes from the shared stream */
byte to_send[REPLICAS];
byte out[REPLICAS];           /* batches in its socket or in its caller's hands */

/* The replicas. */
byte cursor[REPLICAS];
bool connected[REPLICAS];
byte in_hand[REPLICAS];
bool hand[SLOTS * REPLICAS];  /* which slots, */
byte own_hand[REPLICAS];      /* and how many of its own stream */
chan to_rank[REPLICAS] = [CREDITS] of { byte, byte }; /* batch, slot or OWN */
chan releases[REPLICAS] = [CREDITS] of { byte };      /* slot or OWN */

/* The truth: a live process may read the slot. */
bool may_read[SLOTS * REPLICAS];
bool got[BATCHES * REPLICAS]; /* since the daemon's start */
byte daemon_deaths = 1, deaths = 2;

#define DONE (cursor[0] == BATCHES && cursor[1] == BATCHES)
/* A batch may go: with WAIT, not before each replica has got it, or can do without. */
#ifdef WAIT
#define SERVED(r, n) (got[(n) * REPLICAS + (r)] || (n) < join_at[r] || (n) < cursor[r])
#else
#define SERVED(r, n) true
#endif

#define READ(s) (may_read[AT(s, 0)] || may_read[AT(s, 1)])

#ifdef WAIT
#define EXPECTS(r, n) ((n) >= join_at[r])
#else
#define EXPECTS(r, n) (attached[r] && (n) >= join_at[r])
#endif

inline settle(s) {
#ifdef BUG_FREE_AT_FIRST
  if
  :: !holds[AT(s, 0)] || !holds[AT(s, 1)] ->
    batch_in[s] = NONE; needs[AT(s, 0)] = false; needs[AT(s, 1)] = false
  :: else
  fi
#else
  if
  :: !needs[AT(s, 0)] && !needs[AT(s, 1)] && !holds[AT(s, 0)] && !holds[AT(s, 1)] ->
    assert(SERVED(0, batch_in[s]) && SERVED(1, batch_in[s]));
    batch_in[s] = NONE
  :: else
  fi
#endif
}

/* A replica's process has exited: what it had is given back. */
inline lose(r, s) {
  attached[r] = false;
  to_send[r] = 0;
  out[r] = 0;
  for (s : 0 .. SLOTS - 1) {
    if
    :: batch_in[s] != NONE ->
      holds[AT(s, r)] = false;
#ifndef WAIT
      needs[AT(s, r)] = false;
#endif
#ifdef BUG_FORGET_ABSENT
      needs[AT(s, r)] = false;
#endif
      settle(s)
    :: else
    fi
  }
  s = 0
}

inline clear_rank(r, s) {
  do
  :: nempty(to_rank[r]) -> to_rank[r]?_, _
  :: empty(to_rank[r]) -> break
  od;
  do
  :: nempty(releases[r]) -> releases[r]?_
  :: empty(releases[r]) -> break
  od;
  connected[r] = false;
  in_hand[r] = 0;
  own_hand[r] = 0;
  for (s : 0 .. SLOTS - 1) {
    hand[AT(s, r)] = false;
    may_read[AT(s, r)] = false
  };
  s = 0
}

inline attach(r, s) {
  attached[r] = true;
  to_send[r] = cursor[r];
  if
  :: to_make == NONE -> to_make = cursor[r]
  :: else
  fi;
  /* The oldest batch that is kept for it, else the next one to be made. */
  join_at[r] = to_make;
  for (s : 0 .. SLOTS - 1) {
    if
    :: batch_in[s] != NONE && needs[AT(s, r)] && batch_in[s] < cursor[r] ->
      needs[AT(s, r)] = false; /* it has had it, of the daemon before */
      settle(s)
    :: else
    fi;
    if
#ifdef BUG_JOIN_AT_OLDEST
    :: batch_in[s] != NONE && batch_in[s] < join_at[r] -> join_at[r] = batch_in[s]
#else
    :: batch_in[s] != NONE && needs[AT(s, r)] && batch_in[s] < join_at[r] ->
      join_at[r] = batch_in[s]
#endif
    :: else
    fi
  };
  if
  :: join_at[r] < cursor[r] -> join_at[r] = cursor[r]
  :: else
  fi;
  s = 0
}

proctype Daemon() {
  byte r, s;
  do
  :: atomic { serving && to_make != NONE && to_make < BATCHES &&
              (batch_in[0] == NONE || batch_in[1] == NONE) ->
      if
      :: batch_in[0] == NONE -> s = 0
      :: else -> s = 1
      fi;
      assert(!READ(s));
      batch_in[s] = to_make;
      needs[AT(s, 0)] = EXPECTS(0, to_make);
      needs[AT(s, 1)] = EXPECTS(1, to_make);
      to_make++;
      settle(s);
      s = 0 }
  :: atomic { serving && nempty(releases[0]) || serving && nempty(releases[1]) ->
      if
      :: nempty(releases[0]) -> r = 0
      :: nempty(releases[1]) -> r = 1
      fi;
      releases[r]?s;
      assert(out[r] > 0);
      out[r]--;
      if
      :: s != OWN ->
        assert(holds[AT(s, r)]);
        holds[AT(s, r)] = false;
        settle(s)
      :: else
      fi;
      r = 0; s = 0 }
  :: atomic { serving && daemon_deaths > 0 ->
      daemon_deaths--;
      serving = false;
      to_make = NONE;
      for (r : 0 .. REPLICAS - 1) {
        attached[r] = false; join_at[r] = 0; to_send[r] = 0; out[r] = 0;
        for (s : 0 .. SLOTS - 1) {
          needs[AT(s, r)] = false; holds[AT(s, r)] = false;
          /* What is read now are the dead daemon's slots, which nobody writes to any more. */
          may_read[AT(s, r)] = false
        }
      };
      for (s : 0 .. SLOTS - 1) { batch_in[s] = NONE };
      for (s : 0 .. BATCHES * REPLICAS - 1) { got[s] = false };
      for (r : 0 .. REPLICAS - 1) { /* nobody reads what was sent to it */
        do
        :: nempty(releases[r]) -> releases[r]?_
        :: empty(releases[r]) -> break
        od
      };
      r = 0; s = 0 }
  :: atomic { !serving -> serving = true }
  :: atomic { DONE && in_hand[0] == 0 && in_hand[1] == 0 && empty(releases[0]) &&
              empty(releases[1]) && empty(to_rank[0]) && empty(to_rank[1]) ->
      break }
  od;
  /* The job ends: what was kept for who had it of the daemon before goes, and all is free. */
  atomic {
    for (s : 0 .. SLOTS - 1) {
      for (r : 0 .. REPLICAS - 1) {
        if
        :: batch_in[s] != NONE && !attached[r] -> needs[AT(s, r)] = false; settle(s)
        :: else
        fi
      }
    };
    assert(batch_in[0] == NONE && batch_in[1] == NONE && out[0] == 0 && out[1] == 0)
  }
}

/* What the daemon sends to one replica. */
proctype Feed(byte r) {
  byte s;
  do
  :: atomic { serving && attached[r] && to_send[r] < join_at[r] && out[r] < CREDITS ->
      to_rank[r]!to_send[r], OWN;
      out[r]++;
      to_send[r]++ }
  :: atomic { serving && attached[r] && to_send[r] >= join_at[r] && out[r] < CREDITS &&
              (needs[AT(0, r)] && batch_in[0] == to_send[r] ||
               needs[AT(1, r)] && batch_in[1] == to_send[r]) ->
      if
      :: needs[AT(0, r)] && batch_in[0] == to_send[r] -> s = 0
      :: else -> s = 1
      fi;
      needs[AT(s, r)] = false;
      holds[AT(s, r)] = true;
      got[to_send[r] * REPLICAS + r] = true;
      may_read[AT(s, r)] = true;
      to_rank[r]!to_send[r], s;
      out[r]++;
      to_send[r]++;
      s = 0 }
  :: atomic { DONE && empty(to_rank[r]) -> break }
  od
}

proctype Replica(byte r) {
  byte n, s;
  do
  /* Replicas wait for each other: none leaves while the other has some way to go. */
  :: atomic { serving && !connected[r] && !DONE -> connected[r] = true; attach(r, s) }
  :: atomic { connected[r] && nempty(to_rank[r]) ->
      to_rank[r]?n, s;
      assert(n == cursor[r]);
      cursor[r] = n + 1;
      in_hand[r]++;
      if
      :: s == OWN -> own_hand[r]++
      :: else -> assert(!hand[AT(s, r)] || !attached[r]); hand[AT(s, r)] = true
      fi;
      n = 0; s = 0 }
  :: atomic { connected[r] && attached[r] && in_hand[r] > 0 ->
      if
      :: own_hand[r] > 0 -> s = OWN; own_hand[r]--
      :: hand[AT(0, r)] -> s = 0
      :: hand[AT(1, r)] -> s = 1
      fi;
      if
      :: s != OWN -> hand[AT(s, r)] = false; may_read[AT(s, r)] = false
      :: else
      fi;
      in_hand[r]--;
      assert(nfull(releases[r]));
      releases[r]!s;
      s = 0 }
  /* The daemon is another one: what is held lives on without a lease. */
  :: atomic { connected[r] && !attached[r] && empty(to_rank[r]) -> clear_rank(r, s) }
  :: atomic { deaths > 0 && connected[r] -> deaths--; clear_rank(r, s); lose(r, s) }
  :: atomic { DONE && in_hand[r] == 0 && empty(to_rank[r]) -> break }
  od
}

init {
  byte r;
  atomic {
    for (r : 0 .. SLOTS - 1) { batch_in[r] = NONE };
    for (r : 0 .. REPLICAS - 1) {
      run Feed(r);
      run Replica(r)
    };
    run Daemon()
  }
}
