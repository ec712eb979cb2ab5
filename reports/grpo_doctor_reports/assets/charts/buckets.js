// Neighbouring steps as columns that are wide enough to see; a column is the mean of its steps.
const COLUMN_PX = 3;

// Unpacks what `buckets_data` and its stacks have packed; `rows` lanes follow each other in a stack.
function unpackBuckets(packed) {
  const [first, last, steps, used, kind, start, end] =
    ["first", "last", "steps", "used", "kind", "start", "end"].map((name) => unpack(packed[name]));
  const stacks = packed.stacks.map(({ phase, v, wait }) => ({ phase, v: unpack(v), wait: wait === null ? null : unpack(wait) }));
  return { first, last, steps, used, kind, kinds: packed.kinds, start, end, stacks, count: first.length };
}

// Buckets that meet [from, to), merged with those beside them until each is COLUMN_PX wide.
// `start` and `end` are in the unit of the range, `perPixel` is that unit's part of a pixel.
function columnsOf(buckets, start, end, [from, to], perPixel) {
  const columns = [];
  for (let at = 0; at < buckets.count; at += 1) {
    if (end[at] <= from || start[at] >= to) continue;
    const before = columns[columns.length - 1];
    const joins = before && buckets.used[at] === before.used && start[at] >= before.start
      && before.end - before.start < COLUMN_PX * perPixel;
    if (joins) {
      before.members.push(at);
      before.end = end[at];
    } else {
      columns.push({ members: [at], start: start[at], end: end[at], used: buckets.used[at] });
    }
  }
  return columns;
}

// Seconds of each stack in a column, weighted by steps; `offset` is where the lane begins.
function meanOf(values, column, buckets, offset = 0) {
  let [sum, steps] = [0, 0];
  for (const at of column.members) {
    const value = values[offset + at];
    if (value === null) continue;
    sum += value * buckets.steps[at];
    steps += buckets.steps[at];
  }
  return steps ? sum / steps : null;
}

// What of a column each phase takes, bottom up: [{ phase, low, high, wait }] in seconds; the wait
// is the uppermost part.
function stackOf(column, buckets, offset = 0) {
  let top = 0;
  const parts = [];
  for (const { phase, v, wait } of buckets.stacks) {
    const seconds = meanOf(v, column, buckets, offset);
    if (!(seconds > 0)) continue;
    const waits = wait === null ? 0 : Math.min(seconds, meanOf(wait, column, buckets, offset) ?? 0);
    parts.push({ phase, low: top, high: top + seconds, wait: waits });
    top += seconds;
  }
  return parts;
}

function stepsOf(column, buckets) {
  const [first, last] = [buckets.first[column.members[0]], buckets.last[column.members[column.members.length - 1]]];
  const count = column.members.reduce((sum, at) => sum + buckets.steps[at], 0);
  return { first, last, count, name: first === last ? `step ${first}` : `steps ${first} to ${last}` };
}

function kindsOf(column, buckets) {
  return [...new Set(column.members.map((at) => buckets.kinds[buckets.kind[at]]))].filter((kind) => kind !== "steady");
}
