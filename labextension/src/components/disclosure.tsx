// A line that opens: a button, and what it shows below.
import * as React from 'react';

/** The line; closed, what is below is not in the page. */
export function Disclosure(props: {
  label: string;
  name: string;
  children: React.ReactNode;
}): React.JSX.Element {
  const [open, setOpen] = React.useState(false);
  const id = `jp-replkernel-disclosed-${props.name}`;
  return (
    <div className="jp-replkernel-disclosure">
      <button
        type="button"
        className="jp-replkernel-toggle jp-mod-wide"
        aria-expanded={open}
        aria-controls={open ? id : undefined}
        onClick={() => {
          setOpen(!open);
        }}
      >
        <span aria-hidden="true">{open ? '▾' : '▸'}</span> {props.label}
      </button>
      {open && <div id={id}>{props.children}</div>}
    </div>
  );
}
