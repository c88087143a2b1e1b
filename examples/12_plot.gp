# 12_plot.gp -- draws two pictures from the files that `12_reports DIR` writes: growth.png and heat.png.
#
#     gnuplot -e "dir='build/demo'" examples/12_plot.gp
#
# Needs gnuplot 5.2 or newer with the pngcairo terminal. All numbers come from the CSV files. The colours are
# those of Okabe and Ito, which colour-blind readers can tell apart.

if (!exists("dir")) dir = 'build/demo'
set datafile separator ','
set encoding utf8
set terminal pngcairo size 1600,900 font 'Sans,19' background rgb 'white'
set tics nomirror out scale 0.7 textcolor rgb '#222222'
set title font 'Sans Bold,24' textcolor rgb '#222222' offset 0,0.7
set border 3 lw 1.5 lc rgb '#444444'
set style fill solid 0.85 noborder
unset key

# ---- growth.png: the error of one sum in seven accumulators ----

growth = dir . '/growth.csv'
set output dir . '/growth.png'
set title 'The same sum: an FP16 accumulator stops, FP32 drifts, careful FP32 stays' offset 8,0.7
set logscale x 2
set logscale y 10
set xrange [16:1048576]
set yrange [1e-9:3]
set format x '2^{%L}'
set format y '10^{%L}'
set xtics 16,16,1048576
set ytics nomirror 1e-9,10,1
set ytics add ('≤ 10^{-9}' 1e-9)
set mytics 1
set xlabel 'number of terms, each between 0 and 1' offset 0,-0.4
set ylabel 'relative error of the sum (1: nothing of it is left)'
array method[7] = ['bf16', 'f16', 'f32', 'f32 in blocks', 'pairwise', 'Kahan', 'Neumaier']
array title[7] = ['BF16', 'FP16', 'FP32', 'FP32 in blocks of 256', 'FP32, pairwise', 'FP32, Kahan', \
    'FP32, Neumaier']
array colour[7] = [0xC98500, 0xD55E00, 0x0072B2, 0x3A9BD9, 0xB3598F, 0x009E73, 0x666666]
rows(n) = sprintf("< awk -F, '$2 == \"%s\"' %s", method[n], growth)
set margins 11, 27, 4.7, 4
# Each name stands at the end of its curve. Where names would overlap, one moves down, and a line leads there.
at = 1e9
do for [n = 1:7] {
    stats rows(n) using 3:8 nooutput
    end = STATS_max_x
    stats rows(n) using ($3 == end ? $8 : NaN) nooutput
    at = STATS_min < at / 2.7 ? STATS_min : at / 2.7
    set arrow n from end, STATS_min to 1.7 * end, at nohead lw 1 lc rgb colour[n]
    set label n title[n] at 1.9 * end, at textcolor rgb colour[n]
}
width(n) = n == 6 ? 9 : 3           # Kahan and Neumaier often agree: one is drawn thicker, around the other
plot for [n in "1 2 3 4 6 7 5"] rows(int(n)) using 3:($8 > 1e-9 ? $8 : 1e-9) \
    with linespoints lw width(int(n)) pt 7 ps 0.8 lc rgb colour[int(n)]
unset output
unset logscale
unset arrow
unset label

# ---- heat.png: which layer loses its gradients, and when ----

heat = dir . '/heat.csv'
set output dir . '/heat.png'
set title 'The layers next to the input lose most: share of gradients that FP16 makes zero' offset 7,0.7
set xrange [*:*]
set yrange [*:*]
stats heat using 1 every ::1 nooutput
last = STATS_max
stats heat using 2 every ::1 nooutput
layers = STATS_max
set border 0
set xrange [-5:last + 5]
set yrange [0.5:layers + 0.5]
set format x '%.0f'
set format y '%.0f'
set xtics 0,50,last
set ytics nomirror 1,1,layers
set xlabel 'training step' offset 0,-0.4
set ylabel 'layer (1 is next to the input)'
set cbrange [0:*]
set format cb '%.0f%%'
set margins 11, 14, 4.7, 4
set palette defined (0 '#F7F7F7', 0.3 '#FBD9A0', 0.6 '#E69F00', 0.8 '#D55E00', 1 '#7A1F00')
plot heat using 1:2:3 every ::1 with image
unset output
