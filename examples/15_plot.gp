# 15_plot.gp -- draws two pictures from the files that 15_gpt writes to a folder: gpt_loss.png, the loss of
# all runs, and gpt_flushed.png, the percentage of gradients that became 0 in FP16 with scale 64.
#
#     gnuplot -e "dir='build/demo'" examples/15_plot.gp
# Needs gnuplot 5.2 or newer with the pngcairo terminal.

if (!exists("dir")) dir = 'build/demo'
set datafile separator ','
set encoding utf8
set terminal pngcairo size 1600,900 font 'Sans,18' background rgb 'white'
set tics nomirror out scale 0.7
set key outside right top
set xlabel 'step'

ways = "'FP32' 'FP16 no scale' 'FP16 scale 64' 'FP16 scale 2^18' 'FP16 dynamic scale' 'BF16 no scale' \
'E4M3 forward FP16 grads' 'FP16 no masters'"
name(n) = word(ways, n)

set output dir . '/gpt_loss.png'
set title 'A GPT learns to add: the loss, by the way of storing numbers'
set ylabel 'loss'
set logscale y
plot for [n = 1:8] dir . '/loss.csv' using 2:(strcol(1) eq name(n) ? $3 : NaN) with lines lw 2 \
    title name(n) noenhanced

set output dir . '/gpt_flushed.png'
set title 'FP16 scale 64: gradients that became 0'
set ylabel '%'
unset logscale y
set yrange [0:100]
groups = "'embeddings' 'block 1' 'block 2' 'head'"
plot for [g = 1:4] dir . '/flushed.csv' \
    using 2:(strcol(1) eq 'FP16 scale 64' && strcol(3) eq word(groups, g) ? $4 : NaN) \
    with points pt 7 ps 0.7 title word(groups, g)
