/** Returns `undefined` if it throws: rules are for what can be read. */
export function attempt<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}
