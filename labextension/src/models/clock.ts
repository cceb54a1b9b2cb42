// How times are written: as people of a locale do, alike in tables and on the axes of charts. Pure.
// Law: what an axis cannot write (other digits, more parts of a day than two) tables do not write either.
const DAY_S = 24 * 3600;
/** A morning and an evening with a number of each length that a clock may show. */
const HOURS = Array.from({ length: 24 }, (_, hour) => new Date(2000, 0, 1, hour, 5, 5));
const [MORNING, EVENING] = [new Date(2000, 0, 1, 9, 5, 5), new Date(2000, 0, 1, 21, 5, 5)];

/** Write a Unix time: the time of day, with its date where that is not of the last day. */
export function clock(at: number, now: number, locale?: string): string {
  const style: Intl.DateTimeFormatOptions =
    now - at < DAY_S ? { timeStyle: 'short' } : { dateStyle: 'medium', timeStyle: 'short' };
  return formatter(style, locale).format(new Date(at * 1000));
}

/** How a locale writes times, as far as an axis can: in Latin digits, in 24 hours where a day has more than two parts. */
function formatter(style: Intl.DateTimeFormatOptions, locale?: string): Intl.DateTimeFormat {
  const latin = { ...style, numberingSystem: 'latn' };
  const usual = new Intl.DateTimeFormat(locale, latin);
  const parts = new Set(HOURS.map(hour => partOfDay(usual, hour)));
  return parts.size > 2 ? new Intl.DateTimeFormat(locale, { ...latin, hourCycle: 'h23' }) : usual;
}

function partOfDay(style: Intl.DateTimeFormat, hour: Date): string {
  return style.formatToParts(hour).find(part => part.type === 'dayPeriod')?.value ?? '';
}

/** Write how Vega is to label an axis of times: an expression over `datum.value`. */
export function axisClock(seconds: boolean, locale?: string): string {
  const style = formatter({ timeStyle: seconds ? 'medium' : 'short' }, locale);
  const numbers = specifiers(style);
  const pattern = (date: Date): string =>
    style
      .formatToParts(date)
      .map(({ type, value }) => numbers.get(type) ?? value.replaceAll('%', '%%'))
      .join('');
  const [morning, evening] = [pattern(MORNING), pattern(EVENING)].map(text => JSON.stringify(text));
  return `timeFormat(datum.value, hours(datum.value) < 12 ? ${morning} : ${evening})`;
}

/** What d3 calls the numbers of a clock; hours have a leading zero where the locale writes one. */
function specifiers(style: Intl.DateTimeFormat): Map<string, string> {
  const hour = style.formatToParts(MORNING).find(part => part.type === 'hour')?.value ?? '';
  const padded = hour.length > 1 ? '' : '-';
  return new Map([
    ['hour', `%${padded}${style.resolvedOptions().hour12 ? 'I' : 'H'}`],
    ['minute', '%M'],
    ['second', '%S']
  ]);
}
