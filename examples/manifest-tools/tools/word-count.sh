#!/bin/sh
# The arguments come as JSON on one line of stdin; the result goes to stdout.
# What goes to stderr is shown while the tool runs.
read -r args
echo "counting" >&2
text=$(printf '%s' "$args" | sed -e 's/^{"text":"//' -e 's/"}$//' -e 's/\\[nrt]/ /g')
printf '{"words": %d}\n' "$(printf '%s' "$text" | wc -w)"
