/** Runs several jobs at a time. @module */

/** Does all jobs, so many at a time; each gets the number of its lane. */
export async function runInLanes(count: number, jobs: readonly ((lane: number) => Promise<void>)[]): Promise<void> {
  const queue = [...jobs];
  const runLane = async (lane: number) => {
    for (let job = queue.shift(); job; job = queue.shift()) await job(lane);
  };
  await Promise.all(Array.from({ length: count }, (_, lane) => runLane(lane)));
}
