import { type LabelSelector, selects } from "./label_selector.ts";
import type { Labels } from "./labels.ts";

/** What has a selector, found by the labels that it selects. */
export class SelectorIndex<T extends { readonly selector: LabelSelector }> {
  /** By `key=value` of one requirement, or by its key. */
  readonly #byLabel = new Map<string, Set<T>>();
  /** Those that need no label. */
  readonly #others = new Set<T>();

  add(item: T): void {
    const keys = indexKeys(item.selector);
    if (!keys) this.#others.add(item);
    for (const key of keys ?? []) addTo(this.#byLabel, key, item);
  }

  delete(item: T): void {
    this.#others.delete(item);
    for (const key of indexKeys(item.selector) ?? []) deleteFrom(this.#byLabel, key, item);
  }

  get isEmpty(): boolean {
    return this.#byLabel.size === 0 && this.#others.size === 0;
  }

  *all(): Generator<T> {
    yield* new Set([...this.#others, ...this.#byLabel.values().flatMap((items) => items)]);
  }

  *selecting(labels: Labels): Generator<T> {
    for (const item of this.#candidates(labels)) if (selects(item.selector, labels)) yield item;
  }

  *#candidates(labels: Labels): Generator<T> {
    yield* this.#others;
    if (this.#byLabel.size === 0) return;
    for (const [key, value] of labels) {
      yield* this.#byLabel.get(key) ?? [];
      yield* this.#byLabel.get(`${key}=${value}`) ?? [];
    }
  }
}

/** Labels of which a selected object has exactly one; `undefined` if it needs none. */
export function indexKeys({ requirements }: LabelSelector): string[] | undefined {
  let found: string[] | undefined;
  for (const requirement of requirements) {
    if (requirement.operator === "In" && requirement.values.length > 0) {
      if (found && found.length <= requirement.values.length) continue;
      found = requirement.values.map((value) => `${requirement.key}=${value}`);
    } else if (requirement.operator === "Exists") found ??= [requirement.key];
  }
  return found;
}

export function addTo<K, V>(sets: Map<K, Set<V>>, key: K, value: V): void {
  const set = sets.get(key);
  if (set) set.add(value);
  else sets.set(key, new Set([value]));
}

export function deleteFrom<K, V>(sets: Map<K, Set<V>>, key: K, value: V): void {
  const set = sets.get(key);
  if (set?.delete(value) && set.size === 0) sets.delete(key);
}
